package demo

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// process is the parent's side of one worker.
type process struct {
	worker int // from 1
	cmd    *exec.Cmd
	in     io.WriteCloser
	ready  chan error    // capacity 1: nil, or why it could not start
	ended  chan struct{} // closed when it has ended, and all that it said was heard

	// Set before ended is closed.
	sum *summary // nil: it did not end in order
	err error    // how it ended
}

// startWorker starts a process. What it increments goes to t, what it logs to note.
func startWorker(j job, t *tally, note func(string)) (*process, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{
		worker: j.Worker, cmd: exec.Command(exe, WorkerCommand, fmt.Sprint(j.Worker)),
		ready: make(chan error, 1), ended: make(chan struct{}),
	}
	p.cmd.Stderr = &lineWriter{line: func(s string) { note(j.name() + ": " + s) }}
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		p.listen(out, t)
		p.err = p.cmd.Wait()
		select {
		case p.ready <- fmt.Errorf("it ended: %v", p.cmd.ProcessState):
		default:
		}
	}()
	b, err := json.Marshal(j)
	if err == nil {
		err = p.say(string(b))
	}
	return p, err
}

// say sends a line. A worker that is gone is noticed elsewhere.
func (p *process) say(line string) error {
	_, err := io.WriteString(p.in, line+"\n")
	return err
}

// stop lets the worker end in order.
func (p *process) stop() {
	_ = p.say(wordStop)
	_ = p.in.Close()
}

// await waits for the worker's end, and brings it about where it takes too long.
func (p *process) await(limit time.Duration) {
	select {
	case <-p.ended:
	case <-time.After(limit):
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}

// listen reads what the worker says, until it says no more.
func (p *process) listen(out io.Reader, t *tally) {
	lines := bufio.NewReaderSize(out, 1<<16)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return // a line that a kill cut in two does not count
		}
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case wordPlus:
			if value, wait, err := parsePlus(rest); err == nil {
				t.add(p.worker-1, value, wait)
			}
		case wordReady:
			p.ready <- nil
		case wordFail:
			select {
			case p.ready <- errors.New(rest):
			default:
			}
		case wordSum:
			var s summary
			if json.Unmarshal([]byte(rest), &s) == nil {
				p.sum = &s
			}
		}
	}
}

// lineWriter hands over what is written to it line by line.
type lineWriter struct {
	line func(string)
	mu   sync.Mutex
	rest string
}

func (w *lineWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rest += string(b)
	for {
		line, rest, whole := strings.Cut(w.rest, "\n")
		if !whole {
			return len(b), nil
		}
		w.rest = rest
		w.line(line)
	}
}
