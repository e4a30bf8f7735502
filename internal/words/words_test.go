package words

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatCannotBeSeenIsQuoted(t *testing.T) {
	for s, want := range map[string]string{
		"orders": "orders", "ünïcödé 🔒": "ünïcödé 🔒", "a b": "a b", "<b>": "<b>", "שלום": "שלום",
		"": `""`, "a\nb": `"a\nb"`, "\x1b[2J": `"\x1b[2J"`, "\xff\xfe": `"\xff\xfe"`, "a\u202eb": `"a\u202eb"`, "a\x00": `"a\x00"`,
	} {
		require.Equal(t, want, Printable(s))
	}
}
