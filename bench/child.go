package main

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

// The program starts itself again, as what takes locks, as what is killed while it has one, and as etcd's
// server. Such a child reads its job from the environment, says "ready", waits for "go", and says what came
// of it, in JSON. It ends when its standard input does: with its parent.

// jobEnv is where a child finds its job.
const jobEnv = "VALKEYSYNC_BENCH_JOB"

// job is what a child is to do. Which fields count depends on Kind.
type job struct {
	Kind  string // one of childJobs
	Place place
	Dir   string // a folder of its own

	Contestant string
	Key        string
	Crowd      crowd
	Rounds     rounds
	Names      []string // of contestants
	Locks      int      // how many to hold
	Watch      time.Duration
}

// childJobs prepare a job; what they return does it, and its result is told to the parent.
var childJobs map[string]func(j job) (ready any, run func() (any, error), err error)

func init() {
	childJobs = map[string]func(job) (any, func() (any, error), error){
		"crowd":       prepareCrowd,
		"uncontended": prepareUncontended,
		"hold":        prepareHold,
		"many":        prepareMany,
		"etcd":        prepareEtcd,
	}
}

// childMain does the job of a child and never returns, if this process is one.
func childMain() {
	text, ok := os.LookupEnv(jobEnv)
	if !ok {
		return
	}
	if err := childRun(text); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func childRun(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	ready, run, err := childJobs[j.Kind](j)
	if err != nil {
		return fmt.Errorf("%s: %w", j.Kind, err)
	}
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(ready); err != nil {
		return err
	}
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return nil //nolint:nilerr // the parent wants no more
	}
	result, err := run()
	if err != nil {
		return fmt.Errorf("%s %s: %w", j.Kind, j.Contestant, err)
	}
	if err := out.Encode(result); err != nil {
		return err
	}
	_, _ = io.Copy(io.Discard, in) // until the parent ends it
	return nil
}

// child is one that runs.
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	stderr *strings.Builder
	end    sync.Once
}

// start starts a child and returns when it is ready; what it says then goes to ready, unless that is nil.
func start(j job, ready any, env ...string) (*child, error) {
	text, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(exe), stderr: &strings.Builder{}}
	c.cmd.Env = append(append(os.Environ(), env...), jobEnv+"="+string(text))
	c.cmd.Stderr = c.stderr
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = json.NewDecoder(out)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	if err := c.read(ready); err != nil {
		return nil, err
	}
	return c, nil
}

// run has the child do its job.
func (c *child) run(result any) error {
	if _, err := io.WriteString(c.in, "go\n"); err != nil {
		return c.failed(err)
	}
	return c.read(result)
}

func (c *child) read(v any) error {
	if v == nil {
		v = new(any)
	}
	if err := c.out.Decode(v); err != nil {
		return c.failed(err)
	}
	return nil
}

// failed ends a child that does not answer, and says what it has complained of.
func (c *child) failed(err error) error {
	_ = c.cmd.Process.Kill() // if it is not gone already
	_ = c.cmd.Wait()         // what it said tells more
	return errors.New(strings.TrimSpace(fmt.Sprintf("a child failed: %v: %s", err, c.stderr)))
}

// close ends the child and waits until it is gone.
func (c *child) close() {
	c.end.Do(func() {
		_ = c.in.Close()
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
}

// kill is SIGKILL.
func (c *child) kill() error { return c.cmd.Process.Kill() }

func (c *child) pid() int { return c.cmd.Process.Pid }
