package testserver

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// Flavor names one of the servers that the library supports.
type Flavor string

// The flavors.
const (
	Valkey Flavor = "valkey"
	Redis  Flavor = "redis"
)

// Flavors returns all flavors, in a fixed order.
func Flavors() []Flavor { return []Flavor{Valkey, Redis} }

// Each runs fn as a subtest for each flavor, named after it, with a server of
// that flavor started with args.
func Each(t *testing.T, args []string, fn func(t *testing.T, s *Server)) {
	t.Helper()
	for _, f := range Flavors() {
		t.Run(string(f), func(t *testing.T) {
			fn(t, Start(t, f, args...))
		})
	}
}

// Binary finds the flavor's server: the path in VALKEYSYNC_VALKEY_SERVER or
// VALKEYSYNC_REDIS_SERVER where that is set, else valkey-server or redis-server
// in PATH.
func (f Flavor) Binary() (string, error) {
	var name, env string
	switch f {
	case Valkey:
		name, env = "valkey-server", "VALKEYSYNC_VALKEY_SERVER"
	case Redis:
		name, env = "redis-server", "VALKEYSYNC_REDIS_SERVER"
	default:
		return "", fmt.Errorf("unknown flavor %q", string(f))
	}
	if override := os.Getenv(env); override != "" {
		name = override
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("%w: install the servers with `make servers`, or name the binary in %s", err, env)
	}
	return path, nil
}
