// Package fault puts errors in words: each text begins with the module's name, once, however many errors are in it.
package fault

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

const prefix = "valkeysync: "

// New is errors.New with the prefix.
func New(text string) error { return errors.New(prefix + text) }

// Errorf is fmt.Errorf with the prefix, and the errors in it are Bare.
func Errorf(format string, args ...any) error {
	args = slices.Clone(args)
	for i, arg := range args {
		if err, ok := arg.(error); ok {
			args[i] = Bare(err)
		}
	}
	return fmt.Errorf(prefix+format, args...)
}

// Bare is err for the middle of a text: without the prefix, on each of its lines. nil is nil.
func Bare(err error) error {
	if err == nil {
		return nil
	}
	return bare{err}
}

type bare struct{ error }

func (e bare) Error() string {
	return strings.ReplaceAll("\n"+e.error.Error(), "\n"+prefix, "\n")[1:]
}

func (e bare) Unwrap() error { return e.error }
