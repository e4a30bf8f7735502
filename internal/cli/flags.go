package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"
)

// usageError is an error of whoever has typed the command.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// flagSet is an empty set of flags that shows nothing by itself.
func flagSet(name string) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.Usage = func() {}
	return f
}

// parse reads flags wherever they stand before a "--", and returns the arguments between them, and those
// behind it (nil without one).
func parse(f *flag.FlagSet, args []string) (plain, behind []string, err error) {
	if i := slices.Index(args, "--"); i >= 0 {
		args, behind = args[:i], append([]string{}, args[i+1:]...)
	}
	for {
		if err := f.Parse(args); err != nil {
			return nil, nil, err
		}
		if f.NArg() == 0 {
			return plain, behind, nil
		}
		plain = append(plain, f.Arg(0))
		args = f.Args()[1:]
	}
}

// parseKey reads flags and exactly one key.
func parseKey(f *flag.FlagSet, args []string) (key string, err error) {
	plain, behind, err := parse(f, args)
	if err != nil {
		return "", err
	}
	plain = append(plain, behind...) // "--" lets a key begin with -
	if len(plain) != 1 {
		return "", fmt.Errorf("give one KEY, not %d", len(plain))
	}
	return plain[0], nil
}

// parseNone reads flags alone.
func parseNone(f *flag.FlagSet, args []string) error {
	plain, behind, err := parse(f, args)
	if plain = append(plain, behind...); err == nil && len(plain) > 0 {
		err = fmt.Errorf("unexpected %q: all that can be given are flags, and they begin with -", plain[0])
	}
	return err
}

// durationVar is a flag with a duration that is not negative.
func durationVar(f *flag.FlagSet, to *time.Duration, name string) {
	f.Func(name, "", func(v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d < 0 {
			return errors.New("give a number with its unit, such as 500ms, 10s or 1m")
		}
		*to = d
		return nil
	})
}

// countVar is a flag with a whole number from 1.
func countVar(f *flag.FlagSet, to *int, name string) {
	f.Func(name, "", func(v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			return errors.New("give a whole number from 1")
		}
		*to = n
		return nil
	})
}
