// Package replicas is for the examples' tests: it runs an example's own main as processes, as a user would start
// them, and reads what they print.
package replicas

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// soon is how long something may take that should take no time, on a machine that is busy with other things.
	soon = 30 * time.Second
	// asReplica is set for a process that is to be the program and not its tests.
	asReplica = "VALKEYSYNC_EXAMPLE_REPLICA"
)

// Main is for TestMain: it runs main in a process that Start started, and the tests in any other.
func Main(m *testing.M, main func()) {
	if os.Getenv(asReplica) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// Crew are the processes of one test.
type Crew struct {
	t *testing.T

	mu   sync.Mutex
	log  []Line
	more chan struct{} // closed, and another, with each line
	next int           // in the log: the first line that Await has not looked at
}

// Line is what a process has printed, without its line feed, and when it was read.
type Line struct {
	From *Replica
	At   time.Time
	Text string
}

// Replica is one process.
type Replica struct {
	Name  string
	crew  *Crew
	cmd   *exec.Cmd
	next  int           // as the crew's, for its own Await
	ended chan struct{} // closed when it has ended and all that it printed was read
}

// New makes an empty crew. If the test fails its log has all that the crew has printed.
func New(t *testing.T) *Crew {
	c := &Crew{t: t, more: make(chan struct{})}
	t.Cleanup(func() {
		if t.Failed() {
			for _, l := range c.Log() {
				t.Logf("%s %-8s %s", l.At.Format("05.000"), l.From.Name, l.Text)
			}
		}
	})
	return c
}

// Start starts a process with these arguments. It is killed when the test ends.
func (c *Crew) Start(name string, args ...string) *Replica {
	c.t.Helper()
	r := &Replica{Name: name, crew: c, cmd: exec.Command(os.Args[0], args...), ended: make(chan struct{})}
	r.cmd.Env = append(os.Environ(), asReplica+"=1")
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	r.cmd.Stderr = r.cmd.Stdout
	if err := r.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	go func() {
		defer close(r.ended)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.mu.Lock()
			c.log = append(c.log, Line{From: r, At: time.Now(), Text: s.Text()})
			close(c.more)
			c.more = make(chan struct{})
			c.mu.Unlock()
		}
		_ = r.cmd.Wait() // ProcessState says it
	}()
	c.t.Cleanup(func() {
		_ = r.cmd.Process.Kill() // it may be gone already
		<-r.ended
	})
	return r
}

// Log is all that was printed so far, in the order in which it was read.
func (c *Crew) Log() []Line {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Line(nil), c.log...)
}

// Await returns the next line that contains text, from whomever. The one before is where it left off; it looks at
// what was printed since, and then waits.
func (c *Crew) Await(text string) Line {
	c.t.Helper()
	l := c.await(&c.next, func(l Line) bool { return strings.Contains(l.Text, text) }, fmt.Sprintf("nobody has said %q", text))
	l.From.next = max(l.From.next, c.next)
	return l
}

// Await is Crew.Await for the lines of this replica. It leaves off by itself: what Crew.Await skips it finds.
func (r *Replica) Await(text string) Line {
	r.crew.t.Helper()
	return r.crew.await(&r.next, func(l Line) bool { return l.From == r && strings.Contains(l.Text, text) },
		fmt.Sprintf("%s has not said %q", r.Name, text))
}

func (c *Crew) await(next *int, is func(Line) bool, complaint string) Line {
	c.t.Helper()
	limit := time.After(soon)
	for {
		c.mu.Lock()
		more := c.more
		for *next < len(c.log) {
			l := c.log[*next]
			*next++
			if is(l) {
				c.mu.Unlock()
				return l
			}
		}
		c.mu.Unlock()
		select {
		case <-more:
		case <-limit:
			c.t.Fatalf("%s within %v", complaint, soon)
		}
	}
}

// Signal sends a signal.
func (r *Replica) Signal(s syscall.Signal) {
	r.crew.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.crew.t.Fatalf("%v to %s: %v", s, r.Name, err)
	}
}

// Exit waits until the process has ended, and returns its exit status, -1 where a signal ended it.
func (r *Replica) Exit() int {
	r.crew.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(soon):
		r.crew.t.Fatalf("%s has not ended within %v", r.Name, soon)
	}
	return r.cmd.ProcessState.ExitCode()
}
