package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/words"
)

const unlockUsage = `Usage: valkeysync unlock -force [-yes] KEY

Takes the lock from whoever has it, also from another program that set no expiry, and gives it to the next who
waits. It is for a lock whose holder is gone, or wrong: a holder that lives is told at once, but may be in
the middle of something. For what protects a store in that case see the fencing tokens in the README.

It shows who has it, and on a terminal asks first. Who has come to hold it in the meantime keeps it.

Flags:
  -force         needed: nobody takes a lock by mistake
  -yes           do not ask; needed where there is no terminal to ask on
` + serverUsage + `
Exit status: 0 nobody holds it any more, or nobody did; 1 not done, for the answer was no or another holds it by
now; 2 wrong usage, or the server cannot be used.
`

func unlockCommand(w World, args []string) int {
	f := flagSet("unlock")
	s := serverFlags(w, f)
	force, yes := f.Bool("force", false, ""), f.Bool("yes", false, "")
	key, err := parseKey(f, args)
	switch {
	case err != nil:
	case !*force:
		err = errors.New("this takes the lock from a holder that may be at work: say so with -force")
	case !*yes && !isTerminal(w.In):
		err = errors.New("there is no terminal to ask on: say -yes as well")
	}
	if err != nil {
		return w.wrongArgs("unlock", unlockUsage, err, cannotRun)
	}
	locks, end, err := s.locks(w)
	if err != nil {
		return w.fail("unlock", ofKey(err), cannotRun)
	}
	defer end()
	status, err := unlock(w, locks, key, *yes)
	if err != nil {
		return w.fail("unlock", ofKey(err), cannotRun)
	}
	return status
}

func unlock(w World, locks *valkeysync.Client, key string, yes bool) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	st, err := locks.Status(ctx, key)
	if err != nil {
		return cannotRun, err
	}
	if len(st.Holders) == 0 {
		fmt.Fprintf(w.Out, "%s is free: there is nothing to take.\n", words.Printable(st.Key))
		return fine, nil
	}
	fmt.Fprint(w.Out, table(st))
	if !yes && !agrees(w) {
		fmt.Fprintln(w.Out, "Left as it is.")
		return negative, nil
	}
	ctx, cancel = context.WithTimeout(context.Background(), callLimit) // the answer took its time
	defer cancel()
	taken, err := locks.ForceUnlockIf(ctx, st)
	switch {
	case err != nil:
		return cannotRun, err
	case !taken:
		return overtaken(ctx, w, locks, key)
	case st.Waiting > 0:
		fmt.Fprintln(w.Out, "Taken. Who waits gets it now.")
	default:
		fmt.Fprintln(w.Out, "Taken. It is free.")
	}
	return fine, nil
}

// overtaken tells how the lock stands that is not held as it was shown.
func overtaken(ctx context.Context, w World, locks *valkeysync.Client, key string) (int, error) {
	st, err := locks.Status(ctx, key)
	switch {
	case err != nil:
		return cannotRun, err
	case len(st.Holders) == 0:
		fmt.Fprintf(w.Out, "%s is free by now: nothing was taken.\n", words.Printable(st.Key))
		return fine, nil
	}
	fmt.Fprint(w.Out, "Left as it is, for it is held by another by now:\n", table(st))
	return negative, nil
}

// agrees asks the person at the terminal.
func agrees(w World) bool {
	fmt.Fprint(w.Out, "Take it? A holder that lives is told, but may be in the middle of something. [y/N] ")
	line, _ := bufio.NewReader(w.In).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "y", "yes":
		return true
	}
	return false
}
