package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/valkeysync/valkeysync"
)

const runUsage = `Usage: valkeysync run [flags] KEY -- COMMAND [ARGUMENT …]

Waits for the lock, runs COMMAND while it is held, and gives it back when COMMAND has ended: flock(1) over
machines. The lock is renewed for as long as that takes. If it is lost (the server is gone for too long,
somebody took it), COMMAND is stopped, for another may hold it now.

  valkeysync run nightly -- ./backup.sh /var
  valkeysync run -wait 0 report -- make report           # or not at all, if it runs elsewhere
  valkeysync run -permits 1/3 api -- ./import            # at most three at once

Flags:
  -shared          together with others that say -shared: the reader of an RWMutex
  -exclusive       alone, among those that say -shared: its writer. Without these the lock is a Mutex
  -owner ID        together with others that say the same ID: a Mutex of that owner
  -permits N/SIZE  N of the SIZE permits of a Semaphore
  -wait D          give up if it cannot be had within D, such as 30s; 0: do not wait (default: wait for ever)
  -lease D         how long the lock outlives a process that hangs or is cut off (default 10s)
  -grace D         how long it outlives a process that died, and how long the server may be out of reach
                   (default 2s; 0: as long as the lease)
  -kill-after D    when the lock is lost: how long after TERM comes KILL (default 5s; 0: KILL at once)
  -name NAME       how the holder is shown to people (default host/COMMAND[pid])
` + serverUsage + `
COMMAND finds VALKEYSYNC_KEY, the key, and VALKEYSYNC_TOKEN, the fencing token, in its environment: a number
that is higher for each holder than for those before. Give it to what the lock protects and have that refuse
a lower one: only that keeps out a COMMAND that goes on after its lock was lost, as it may until it is killed.

INT, QUIT, TERM, HUP, USR1 and USR2 are passed on to COMMAND. In front of a terminal COMMAND is in the process
group of valkeysync, as without it: Ctrl-C and Ctrl-Z reach both by themselves, so INT and QUIT are not passed on
a second time (and a lock whose holder is stopped ends with its lease). Otherwise (cron, systemd, CI, &) it has a
process group of its own, and signals, also those that stop it, go to all of that. The lock is held until COMMAND
itself ends, not what it leaves behind. If valkeysync is killed by KILL, COMMAND (not what it has started) is
killed with it, on Linux.

Exit status: COMMAND's own; 128 and the signal's number if it died by one, or if a signal ended the wait.
  123  the lock was lost, and COMMAND was stopped
  124  the lock could not be had in time
  125  wrong usage, or the server cannot be used: COMMAND was not run
  126  COMMAND was found and could not be run
  127  COMMAND was not found
`

// The exit statuses of run that are not COMMAND's. 124 to 127 are those of timeout(1) and env(1).
const (
	exitLost     = 123
	exitTimeout  = 124
	exitFailed   = 125
	exitNotRun   = 126
	exitNotFound = 127
	exitSignal   = 128 // and its number
)

// What COMMAND finds in its environment.
const (
	keyVariable   = "VALKEYSYNC_KEY"
	tokenVariable = "VALKEYSYNC_TOKEN"
)

const forever = time.Duration(-1)

// job is one run.
type job struct {
	w             World
	server        *server
	key           string
	argv          []string
	shared, alone bool
	owner         string
	n, size       int64 // permits; 0: none
	wait          time.Duration
	lease, grace  time.Duration // -1: the default
	killAfter     time.Duration
	name          string
}

func runCommand(w World, args []string) int {
	j, err := parseRun(w, args)
	if err != nil {
		return w.wrongArgs("run", runUsage, err, exitFailed)
	}
	return j.run()
}

func parseRun(w World, args []string) (*job, error) {
	f := flagSet("run")
	j := &job{w: w, server: serverFlags(w, f), wait: forever, lease: -1, grace: -1, killAfter: 5 * time.Second}
	f.BoolVar(&j.shared, "shared", false, "")
	f.BoolVar(&j.alone, "exclusive", false, "")
	f.StringVar(&j.owner, "owner", "", "")
	f.Func("permits", "", j.setPermits)
	durationVar(f, &j.wait, "wait")
	durationVar(f, &j.lease, "lease")
	durationVar(f, &j.grace, "grace")
	durationVar(f, &j.killAfter, "kill-after")
	f.StringVar(&j.name, "name", "", "")
	plain, behind, err := parse(f, args)
	kinds := 0
	for _, on := range []bool{j.shared, j.alone, j.owner != "", j.size > 0} {
		if on {
			kinds++
		}
	}
	switch {
	case err != nil:
		return nil, err
	case len(plain) == 0:
		return nil, errors.New("give a KEY, and behind -- a COMMAND")
	case behind == nil:
		return nil, fmt.Errorf("put -- between the KEY and the COMMAND: run %s -- %s", plain[0], orElse(strings.Join(plain[1:], " "), "COMMAND"))
	case len(plain) > 1:
		return nil, fmt.Errorf("unexpected %q: one KEY stands before --", plain[1])
	case len(behind) == 0:
		return nil, errors.New("give a COMMAND behind --")
	case kinds > 1:
		return nil, errors.New("-shared, -exclusive, -owner and -permits exclude each other")
	}
	j.key, j.argv = plain[0], behind
	return j, nil
}

func (j *job) setPermits(v string) error {
	n, size, ok := strings.Cut(v, "/")
	var err1, err2 error
	j.n, err1 = strconv.ParseInt(n, 10, 64)
	j.size, err2 = strconv.ParseInt(size, 10, 64)
	if !ok || err1 != nil || err2 != nil || j.n < 1 || j.size < j.n {
		j.size = 0
		return errors.New("give how many of how many, such as 1/3")
	}
	return nil
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// run waits for the lock, runs the command, and gives the lock back.
func (j *job) run() int {
	// A command that is not there is no reason to wait.
	if _, err := exec.LookPath(j.argv[0]); err != nil {
		return j.cannotStart(err)
	}
	// The kernel kills the command with the thread that started it (see child_linux.go): this one has to stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	lost := make(chan error, 1)
	locks, end, err := j.server.locks(j.w, j.options(lost)...)
	if err != nil {
		return j.fail(err)
	}
	ending := true
	defer func() {
		if ending {
			end()
		}
	}()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, heard()...)
	defer signal.Stop(signals)

	lock := j.lock(locks)
	held, sig, err := j.acquire(lock, signals)
	switch {
	case sig != nil:
		return exitSignal + number(sig)
	case errors.Is(err, valkeysync.ErrLocked) || errors.Is(err, errTooLate):
		return j.w.fail("run", err, exitTimeout)
	case err != nil:
		return j.fail(err)
	}
	status, gone := j.command(held, signals, lost)
	var why *valkeysync.LostError
	if errors.As(gone, &why) && why.Cause == valkeysync.CauseUnreachable {
		ending = false // nobody is there to say good-bye to
		return exitLost
	}
	return j.giveBack(lock, held, status, gone)
}

// heard are the signals that are passed on, but for those that whoever started us has us ignore, as nohup(1) does:
// COMMAND is to ignore them too.
func heard() []os.Signal {
	return slices.DeleteFunc(slices.Clone(passedOn), signal.Ignored)
}

// options are those of the Client. lost is told when the lease is.
func (j *job) options(lost chan<- error) []valkeysync.Option {
	opts := []valkeysync.Option{
		valkeysync.WithName(orElse(j.name, holderName(j.argv[0]))),
		valkeysync.WithOnLost(func(_ string, err error) { lost <- err }),
	}
	if j.lease >= 0 {
		opts = append(opts, valkeysync.WithLease(j.lease))
	}
	if j.grace >= 0 {
		opts = append(opts, valkeysync.WithCrashDetection(j.grace))
	}
	return opts
}

// holderName is host/command[pid], of what can be shown.
func holderName(command string) string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	name := host + "/" + filepath.Base(command)
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, name)
	const most = 100 // of the 128 that a name may have
	if len(name) > most {
		name = strings.ToValidUTF8(name[:most], "")
	}
	return fmt.Sprintf("%s[%d]", name, os.Getpid())
}

// lock is the part of the three primitives that run needs.
type lock struct {
	acquire, try func(context.Context) (context.Context, error)
	release      func(context.Context) error
}

func (j *job) lock(c *valkeysync.Client) lock {
	switch {
	case j.size > 0:
		s := c.Semaphore(j.key, j.size)
		return lock{
			acquire: func(ctx context.Context) (context.Context, error) { return s.AcquireContext(ctx, j.n) },
			try:     func(ctx context.Context) (context.Context, error) { return s.TryAcquireContext(ctx, j.n) },
			release: func(ctx context.Context) error { return s.ReleaseContext(ctx, j.n) },
		}
	case j.shared:
		rw := c.RWMutex(j.key)
		return lock{rw.RLockContext, rw.TryRLockContext, rw.RUnlockContext}
	case j.alone:
		rw := c.RWMutex(j.key)
		return lock{rw.LockContext, rw.TryLockContext, rw.UnlockContext}
	}
	var opts []valkeysync.Option
	if j.owner != "" {
		opts = append(opts, valkeysync.WithOwner(j.owner))
	}
	m := c.Mutex(j.key, opts...)
	return lock{m.LockContext, m.TryLockContext, m.UnlockContext}
}

var (
	errTooLate  = errors.New("not had in time")
	errSignaled = errors.New("ended by a signal")
)

// acquire waits for the lock, until -wait is over or a signal comes. The context that it returns only says
// which acquisition that is.
func (j *job) acquire(l lock, signals <-chan os.Signal) (held context.Context, sig os.Signal, err error) {
	if j.wait == 0 {
		held, err = l.try(context.Background())
		return held, nil, err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	if j.wait > 0 {
		late := fmt.Errorf("%w (-wait %v)", errTooLate, j.wait)
		defer time.AfterFunc(j.wait, func() { cancel(late) }).Stop()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		held, err = l.acquire(ctx)
	}()
	for {
		select {
		case <-done:
			if err == nil && ctx.Err() != nil {
				// Had it after all, but too late: the context that it gave has ended.
				_ = l.release(held)
				err = context.Cause(ctx)
			}
			if errors.Is(err, errSignaled) {
				return nil, sig, nil
			}
			var wait *valkeysync.WaitError
			if errors.As(err, &wait) && errors.Is(err, errTooLate) {
				late := *wait
				late.Err = context.Cause(ctx) // that it was by cancelling a context is our own business
				err = &late
			}
			if err != nil {
				return nil, nil, err
			}
			return context.WithoutCancel(held), nil, nil // -wait limits the wait alone
		case s := <-signals:
			if sig == nil {
				sig = s
				cancel(errSignaled)
			}
		}
	}
}

// command runs the command to its end. gone is why the lock was lost meanwhile.
func (j *job) command(held context.Context, signals <-chan os.Signal, lost <-chan error) (status int, gone error) {
	lease, _ := valkeysync.FromContext(held)
	if !lease.Valid() { // we were stopped for long, just now
		gone = <-lost
		_ = j.w.fail("run", fmt.Errorf("%w, before the command was run", gone), exitLost)
		return exitLost, gone
	}
	cmd := exec.Command(j.argv[0], j.argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = j.w.In, j.w.Out, j.w.Err
	cmd.Env = append(os.Environ(), keyVariable+"="+lease.Key(), tokenVariable+"="+strconv.FormatInt(lease.Token(), 10))
	c, err := startChild(cmd)
	if err != nil {
		return j.cannotStart(err), nil
	}
	var kill <-chan time.Time
	for {
		select {
		case <-c.ended:
			if gone != nil {
				c.kill() // what it has left behind
			}
			return exitStatus(cmd.ProcessState), gone
		case sig := <-signals:
			c.pass(sig)
		case gone = <-lost:
			fmt.Fprintf(j.w.Err, "valkeysync run: %s; stopping the command\n", strings.TrimPrefix(gone.Error(), "valkeysync: "))
			c.terminate()
			kill = time.After(j.killAfter)
		case <-kill:
			c.kill()
			kill = nil
		}
	}
}

// giveBack gives the lock back, and makes the exit status of all that happened.
func (j *job) giveBack(l lock, held context.Context, status int, gone error) int {
	err := l.release(held)
	switch {
	case gone != nil:
		return exitLost
	case errors.Is(err, valkeysync.ErrLeaseLost):
		return j.w.fail("run", fmt.Errorf("%w, when the command had just ended with status %d", err, status), exitLost)
	case err != nil:
		_ = j.w.fail("run", fmt.Errorf("the unlock is not confirmed: %w; at the worst the lock ends with its lease", err), 0)
	}
	return status
}

func (j *job) cannotStart(err error) int {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return j.w.fail("run", err, exitNotFound)
	}
	return j.w.fail("run", err, exitNotRun)
}

// fail is the end of a run that never came to the command.
func (j *job) fail(err error) int {
	switch {
	case errors.Is(err, valkeysync.ErrInvalidKey), errors.Is(err, valkeysync.ErrInvalidOption):
		err = usageError{err}
	case errors.Is(err, valkeysync.ErrMismatch):
		err = fmt.Errorf("%w; -exclusive and -shared are for an RWMutex, -permits for a Semaphore, neither for a Mutex", err)
	}
	return j.w.fail("run", err, exitFailed)
}
