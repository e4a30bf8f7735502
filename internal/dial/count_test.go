package dial

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommandsAreCountedHoweverTheStreamIsCut(t *testing.T) {
	stream := []byte("*1\r\n$4\r\nPING\r\n" +
		"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$13\r\n*1\r\n$4\r\nGET\r\n\r\n" + // a value that looks like a command
		"*2\r\n$3\r\nGET\r\n$0\r\n\r\n" +
		"*4\r\n$7\r\nEVALSHA\r\n$3\r\n\r\n$\r\n$1\r\n0\r\n$2\r\n\r\n\r\n" +
		"*2\r\n$3\r\nget\r\n$1\r\nk\r\n")
	for range 200 {
		c := NewCommands()
		s := splitter{command: c.add}
		for rest := stream; len(rest) > 0; {
			n := 1 + rand.IntN(len(rest))
			s.feed(rest[:n])
			rest = rest[n:]
		}
		require.Equal(t, map[string]int64{"PING": 1, "SET": 1, "GET": 2, "EVALSHA": 1}, c.Counts())
	}
}
