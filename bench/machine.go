package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/valkeysync/valkeysync/internal/testserver"
)

// machine is on what something was measured; no name is in it.
type machine struct {
	Cores       int
	System, CPU string
	Go, Server  string
}

func thisMachine(s *testserver.Server) (machine, error) {
	fields, err := info(s, "server")
	if err != nil {
		return machine{}, err
	}
	server := "valkey " + fields["valkey_version"]
	if fields["valkey_version"] == "" {
		server = "redis " + fields["redis_version"]
	}
	return machine{
		Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH, CPU: cpuModel(),
		Go: runtime.Version(), Server: server,
	}, nil
}

func (m machine) String() string {
	cpu := ""
	if m.CPU != "" {
		cpu = " (" + m.CPU + ")"
	}
	return fmt.Sprintf("%d cores%s, %s, %s, %s; servers and clients on the same machine", m.Cores, cpu, m.System, m.Go, m.Server)
}

// versionOf is the version of a module that this program was built with.
func versionOf(module string) string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, d := range build.Deps {
		if d.Path == module {
			return strings.TrimPrefix(d.Version, "v")
		}
	}
	return ""
}
