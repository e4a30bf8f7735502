package main

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWireCountsCommandsHoweverTheyAreCut(t *testing.T) {
	const text = "*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$9\r\na\r\n*1\r\n$b\r\n*2\r\n$3\r\nGET\r\n$0\r\n\r\n"
	for size := 1; size <= len(text); size++ {
		w := &wire{}
		conn, err := w.wrap(discard{}, nil)
		require.NoError(t, err)
		for rest := []byte(text); len(rest) > 0; {
			n := min(size, len(rest))
			_, err := conn.Write(rest[:n])
			require.NoError(t, err)
			rest = rest[n:]
		}
		require.EqualValues(t, 3, w.total(), "in pieces of %d", size)
	}
}

// discard is a connection to nowhere.
type discard struct{ net.Conn }

func (discard) Write(p []byte) (int, error) { return len(p), nil }
