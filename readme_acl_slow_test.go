//go:build slow

package valkeysync

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// TestTheACLLineOfTheReadmeHasNothingTooMuch takes one right after the other away: something is missed.
func TestTheACLLineOfTheReadmeHasNothingTooMuch(t *testing.T) {
	t.Parallel()
	rule := aclRule(t)
	for i, word := range rule {
		if !strings.ContainsAny(word[:1], "+&~") || slices.Contains(ofValkeyGo, word) {
			continue
		}
		t.Run(word, func(t *testing.T) {
			t.Parallel()
			s := testserver.Start(t, testserver.Valkey, logAll...)
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			less := slices.Delete(slices.Clone(rule), i, i+1)
			var b *Client
			a, err := restricted(t, s, less)
			if err == nil {
				b, err = restricted(t, s, less)
			}
			if err == nil {
				err = everything(ctx, a, b, func(string) *testserver.Server { return s })
			}
			missed := slices.DeleteFunc(deniedTo(t, s, less[2]), func(object string) bool { return slices.Contains(asked, object) })
			require.NotEmpty(t, missed, "it works without: %v", err)
		})
	}
}

// ofValkeyGo is what valkey-go sends on every connection, and can do without: HELLO for RESP3, and the PINGs
// by which it notices a dead connection.
var ofValkeyGo = []string{"+hello", "+ping"}
