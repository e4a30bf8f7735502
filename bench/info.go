package main

import (
	"log/slog"
	"strconv"
	"strings"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// quiet keeps the log out of the tables.
var quiet = valkeysync.WithLogger(slog.New(slog.DiscardHandler))

// info is one section of a server's INFO.
func info(s *testserver.Server, section string) (map[string]string, error) {
	reply, err := s.Do("INFO", section)
	if err != nil {
		return nil, err
	}
	text, err := reply.ToString()
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}

// cpuOf is the time for which a server has worked, in seconds.
func cpuOf(s *testserver.Server) (float64, error) {
	fields, err := info(s, "cpu")
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, name := range []string{"used_cpu_sys", "used_cpu_user"} {
		v, err := strconv.ParseFloat(fields[name], 64)
		if err != nil {
			return 0, err
		}
		sum += v
	}
	return sum, nil
}
