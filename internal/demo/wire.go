package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"
)

// What the parent and its workers say to each other, a line each, over the worker's standard input and
// output. The parent: the job (JSON), "go", "stop". The end of its pipe, without a stop, says that the
// parent is gone.
//
// The worker: "ready" or "fail <why>"; "+ <value> <waited ns>" for each increment, when it is done; and at
// the end "sum <JSON>".
const (
	wordGo    = "go"
	wordStop  = "stop"
	wordReady = "ready"
	wordFail  = "fail"
	wordPlus  = "+"
	wordSum   = "sum"
)

// job is what a worker has to do.
type job struct {
	Place      place
	Worker     int // from 1
	Goroutines int
	NoLock     bool
}

func (j job) name() string { return workerName(j.Worker) }

func workerName(n int) string { return fmt.Sprintf("worker %d", n) }

// summary is what a worker says at the end.
type summary struct {
	Lock      map[string]int64 // the commands that its lock sent after the start
	Counter   map[string]int64 // those of the counter
	Lost      uint64           // leases
	Failed    int64            // requests to the counter that failed: nothing was incremented
	Uncertain int64            // writes to the counter without an answer
}

// sender writes lines, from many goroutines, at once: what a killed worker has said was heard.
type sender struct {
	mu  sync.Mutex
	out io.Writer
	buf []byte
}

func (s *sender) say(word, rest string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf = append(append(append(append(s.buf[:0], word...), ' '), strings.ReplaceAll(rest, "\n", " ")...), '\n')
	_, err := s.out.Write(s.buf)
	return err
}

func (s *sender) plus(value int64, wait time.Duration) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf = append(append(s.buf[:0], wordPlus...), ' ')
	s.buf = append(strconv.AppendInt(s.buf, value, 10), ' ')
	s.buf = append(strconv.AppendInt(s.buf, int64(wait), 10), '\n')
	_, err := s.out.Write(s.buf)
	return err
}

func (s *sender) sum(sum summary) error {
	b, err := json.Marshal(sum)
	if err != nil {
		return err
	}
	return s.say(wordSum, string(b))
}

// parsePlus reads what plus wrote behind the word.
func parsePlus(rest string) (value int64, wait time.Duration, err error) {
	v, w, _ := strings.Cut(rest, " ")
	if value, err = strconv.ParseInt(v, 10, 64); err != nil {
		return 0, 0, err
	}
	ns, err := strconv.ParseInt(w, 10, 64)
	return value, time.Duration(ns), err
}
