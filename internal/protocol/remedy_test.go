package protocol

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
)

// What the servers say, word for word, of a command and of a script's command.
func TestWhatAnErrorReplySays(t *testing.T) {
	m := miniredis.RunT(t)
	c, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{m.Addr()}, DisableCache: true})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	for text, is := range map[string]struct{ denied, wrongType bool }{
		"NOPERM User u has no permissions to run the 'evalsha' command":                                                                            {denied: true},
		"ERR ACL failure in script: User u has no permissions to access one of the keys used as arguments script: 1, on @user_script:2.":           {denied: true},
		"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments script: 1, on @user_script:2.": {denied: true},
		"ERR Error running script: NOPERM this user has no permissions":                                                                            {denied: true},
		"WRONGTYPE Operation against a key holding the wrong kind of value script: 1, on @user_script:2.":                                          {wrongType: true},
		"ERR Error running script: WRONGTYPE Operation against a key holding the wrong kind of value":                                              {wrongType: true},
		"ERR unknown command 'NOPERMS'": {},
	} {
		reply := c.Do(context.Background(), c.B().Eval().Script("return redis.error_reply(ARGV[1])").Numkeys(0).Arg(text).Build()).Error()
		require.ErrorContains(t, reply, text[4:])
		for _, err := range []error{reply, fmt.Errorf("acquire: %w", reply), errors.Join(errors.New("one"), reply)} {
			require.Equal(t, is.denied, Denied(err), "%v", err)
			require.Equal(t, is.wrongType, WrongType(err), "%v", err)
		}
	}
	require.False(t, Denied(errors.New("NOPERM")), "not the server's")
	require.False(t, Denied(nil))
}
