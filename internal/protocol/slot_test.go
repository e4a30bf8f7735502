package protocol

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// A script may touch no other slot: all keys of a primitive, and the channels on which its scripts speak,
// hash to the slot of the lock key, by the server's own word.
func TestKeysAndChannelsShareASlot(t *testing.T) {
	for _, f := range testserver.Flavors() {
		t.Run(string(f), func(t *testing.T) {
			s := testserver.Start(t, f, "--cluster-enabled", "yes")
			slot := func(key string) int64 {
				m, err := s.Do("CLUSTER", "KEYSLOT", key)
				require.NoError(t, err)
				n, err := m.ToInt64()
				require.NoError(t, err)
				require.EqualValues(t, n, Slot(key), "%q", key)
				return n
			}
			// said is the hash tag that the scripts for k speak with: they read it from their keys.
			said := func(k Keys) string {
				m, err := s.Do("EVAL", "local KEYS = ARGV\n"+speaking[1]+"return tag", "0", k.list[0], k.list[1])
				require.NoError(t, err)
				tag, err := m.ToString()
				require.NoError(t, err, "%q", k.list)
				return tag
			}
			tried := 0
			// Every name of up to five of these bytes.
			var names func(prefix string)
			names = func(prefix string) {
				k, err := KeysFor("", prefix)
				if err == nil {
					tried++
					want := slot(k.Lock)
					for _, key := range k.list {
						require.Equal(t, want, slot(key), "%q of %q", key, prefix)
					}
					server := Server{Cluster: true}
					channel := server.Channel("4f1c-some-id", server.Tag(&k))
					require.Equal(t, want, slot(channel), "%q of %q", channel, prefix)
					require.Equal(t, k.tag, said(k), "of %q", prefix)
				} else {
					require.True(t, strings.TrimSpace(prefix) == "" || strings.Contains(prefix, "}"), "%q: %v", prefix, err)
				}
				if len(prefix) < 4 {
					for _, b := range []string{"a", "{", "}", " "} {
						names(prefix + b)
					}
				}
			}
			names("")
			require.Greater(t, tried, 100)
			for _, key := range []string{"orders", "{user1}.orders", "foo{}{bar}", "foo{{bar}}zap", "\x00\xff", "schlüssel", "\n{\x00\n}", "%{%}%", "{\xff"} {
				slot(key)
				if k, err := KeysFor("", key); err == nil {
					require.Equal(t, k.tag, said(k), "of %q", key)
				}
			}
		})
	}
}
