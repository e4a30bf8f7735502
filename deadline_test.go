package valkeysync

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Whatever becomes of it, a deadline says what context.WithDeadline says, asked for Done or not.
func TestDeadlineIsWithDeadline(t *testing.T) {
	type key struct{}
	robbed := errors.New("robbed")
	for name, happens := range map[string]func(end, cancel func()){
		"nothing":                      func(_, _ func()) {},
		"its time comes":               func(_, _ func()) { time.Sleep(time.Second) },
		"it is ended":                  func(end, _ func()) { end() },
		"it is ended twice":            func(end, _ func()) { end(); end() },
		"its parent ends":              func(_, cancel func()) { cancel() },
		"its parent ends, then itself": func(end, cancel func()) { cancel(); end() },
	} {
		for _, asked := range []string{"before", "after", "never"} {
			t.Run(name+", Done asked "+asked, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					parent, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
					at := time.Now().Add(time.Second)
					want, end := context.WithDeadline(parent, at)
					defer end()
					got := withDeadline(parent, at)
					defer got.end()
					if asked == "before" {
						got.Done()
					}
					happens(func() { end(); got.end() }, func() { cancel(robbed) })
					synctest.Wait()
					require.Equal(t, want.Err(), got.Err())
					if asked != "never" {
						synctest.Wait()
						require.Equal(t, ended(want), ended(got))
						require.Equal(t, want.Err(), got.Err())
					}
					require.Equal(t, "value", got.Value(key{}))
					by, ok := got.Deadline()
					require.True(t, ok)
					require.Equal(t, at, by)
				})
			})
		}
	}
}

func ended(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return true
	default:
		return false
	}
}

func TestDeadlineIsThatOfAParentThatEndsEarlier(t *testing.T) {
	soon := time.Now().Add(time.Minute)
	parent, cancel := context.WithDeadline(t.Context(), soon)
	defer cancel()
	d := withDeadline(parent, soon.Add(time.Minute))
	defer d.end()
	by, _ := d.Deadline()
	require.Equal(t, soon, by)
}
