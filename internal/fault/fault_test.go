package fault

import (
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestATextHasThePrefixOnce(t *testing.T) {
	inner := New("locked")
	both := errors.Join(inner, io.EOF, inner)
	for want, err := range map[string]error{
		"valkeysync: locked":                        inner,
		"valkeysync: EOF":                           Errorf("%w", io.EOF),
		"valkeysync: New: locked":                   Errorf("New: %w", inner),
		"valkeysync: New: server 1: locked":         Errorf("New: %w", Errorf("server %d: %w", 1, inner)),
		"valkeysync: unlock: locked\nEOF\nlocked":   Errorf("unlock: %w", both),
		`valkeysync: "valkeysync: k": locked (EOF)`: Errorf("%q: %w (%w)", "valkeysync: k", inner, io.EOF),
		"locked": Bare(inner),
		"EOF":    Bare(io.EOF),
	} {
		require.EqualError(t, err, want)
	}
	require.NoError(t, Bare(nil))
}

func TestWhatIsInAnErrorIsFoundInIt(t *testing.T) {
	inner := New("locked")
	err := Errorf("New: %w: %w", Errorf("%w", errors.Join(inner, io.EOF)), &odd{})
	require.ErrorIs(t, err, inner)
	require.ErrorIs(t, err, io.EOF)
	var e *odd
	require.ErrorAs(t, err, &e)
}

type odd struct{}

func (*odd) Error() string { return "odd" }
