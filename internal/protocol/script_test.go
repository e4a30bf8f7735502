package protocol

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The header of each script and the Go that calls it name the same arguments in the same order, and the
// script uses no other.
func TestHeadersAndCallsAgree(t *testing.T) {
	header := regexp.MustCompile(`(?m)^-- ARGV\[(\d+)\] (\w+)`)
	use := regexp.MustCompile(`ARGV\[(\d+)\]`)
	for _, s := range scripts {
		t.Run(s.name, func(t *testing.T) {
			b, err := files.ReadFile("scripts/" + s.name + ".lua")
			require.NoError(t, err)
			var names []string
			for i, m := range header.FindAllStringSubmatch(string(b), -1) {
				require.Equal(t, string(rune('1'+i)), m[1], "numbered in order")
				names = append(names, m[2])
			}
			require.Equal(t, s.args, names)
			for _, m := range use.FindAllStringSubmatch(s.source(), -1) {
				require.LessOrEqual(t, int(m[1][0]-'0'), len(s.args), "ARGV[%s] is not passed", m[1])
			}
			require.True(t, strings.HasPrefix(string(b), "-- "+s.name+": "), "begins with what it does")
		})
	}
}
