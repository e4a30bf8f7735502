package chaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
)

// hand is one worker process, seen from the parent. The proxy is its own: its network can fail alone.
type hand struct {
	who    string
	slot   int
	proc   *os.Process
	in     io.WriteCloser
	mu     sync.Mutex
	dead   bool
	exited chan struct{} // closed when the process has ended and all that it said was taken
}

// hire starts a worker.
func (w *World) hire(slot, life int) (*hand, error) {
	j := w.job(slot, life)
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	h := &hand{who: fmt.Sprintf("w%d.%d", slot, life), slot: slot, exited: make(chan struct{})}
	log, err := os.Create(filepath.Join(w.dir, h.who+".log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), jobEnv+"="+string(text))
	cmd.Stderr = log
	cmd.SysProcAttr = dieWithParent()
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if h.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	started := make(chan error)
	go func() {
		// The kernel kills a process with the thread that has started it, so that thread must last.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer log.Close()
		defer close(h.exited)
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			var e event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				w.record.fault("%s said %q: %v", h.who, lines.Text(), err)
				continue
			}
			if answer := w.record.take(h.who, e); answer != nil {
				h.tell(*answer)
			}
		}
		err = cmd.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		if err != nil && !h.dead {
			w.record.fault("%s ended by itself: %v; its log ends in\n%s", h.who, err, tail(log.Name()))
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	h.proc = cmd.Process
	return h, nil
}

func (w *World) job(slot, life int) job {
	ways := w.ways(slot, -1)
	j := w.plan.job(slot, life, ways[0].Addr())
	if w.plan.Servers > 0 {
		for _, p := range ways {
			j.Addrs = append(j.Addrs, p.Addr())
		}
	}
	return j
}

// tell gives an order. One that ended meanwhile does not hear it.
func (h *hand) tell(o order) {
	line, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	_, _ = h.in.Write(append(line, '\n'))
}

// kill ends the process and returns when all that it had said was taken.
func (h *hand) kill() {
	h.mu.Lock()
	h.dead = true
	h.mu.Unlock()
	_ = h.proc.Kill() // it may have ended by itself, which is told where it is seen
	<-h.exited
}

// pause stops the process, or has it go on.
func (h *hand) pause(on bool) {
	sig := syscall.SIGCONT
	if on {
		sig = syscall.SIGSTOP
	}
	_ = h.proc.Signal(sig) // as in kill
}

// tail is the end of a log.
func tail(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-6000):])
}
