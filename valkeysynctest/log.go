package valkeysynctest

import (
	"bytes"
	"log/slog"
	"sync"
	"testing"
)

// logger writes to the test's log until the test ends; afterwards it would panic.
func logger(t testing.TB) *slog.Logger {
	w := &logWriter{t: t}
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.over = true
	})
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

type logWriter struct {
	mu   sync.Mutex
	t    testing.TB
	over bool
}

func (w *logWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.t.Log(string(bytes.TrimSpace(b)))
	}
	return len(b), nil
}
