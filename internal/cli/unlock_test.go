package cli

import (
	"bytes"
	"io"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// answer is a person at the terminal, and what happens while they think.
type answer func()

func (a answer) Read(p []byte) (int, error) {
	a()
	return copy(p, "y\n"), io.EOF
}

func TestUnlockTakesFromWhomItHasShownAlone(t *testing.T) {
	testserver.Each(t, nil, func(t *testing.T, s *testserver.Server) {
		locks, err := valkeysync.New(s.Client(t), valkeysync.WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, locks.Close()) })
		set := func(value string) {
			_, err := s.Do("SET", "k", value)
			require.NoError(t, err)
		}
		var out bytes.Buffer
		asked := func(meanwhile func()) int {
			out.Reset()
			status, err := unlock(World{In: answer(meanwhile), Out: &out}, locks, "k", false)
			require.NoError(t, err)
			return status
		}

		set("one")
		require.Equal(t, negative, asked(func() { set("two") }))
		require.Contains(t, out.String(), "held by another by now")
		require.Contains(t, out.String(), "holder   two", "and by whom")
		left, err := s.Do("GET", "k")
		require.NoError(t, err)
		value, err := left.ToString()
		require.NoError(t, err)
		require.Equal(t, "two", value)

		require.Equal(t, fine, asked(func() {
			_, err := s.Do("DEL", "k")
			require.NoError(t, err)
		}))
		require.Contains(t, out.String(), "free by now")

		set("three")
		require.Equal(t, fine, asked(func() {}))
		require.Contains(t, out.String(), "Taken.")
	})
}
