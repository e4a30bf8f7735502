package proxy

import (
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Action is what happens to the one command that a rule waits for, and to its
// connection.
type Action struct {
	kind  kind
	delay time.Duration
}

type kind int

const (
	loseRequest kind = iota
	loseRequestCut
	loseReply
	loseReplyCut
	delayRequest
)

// The actions that lose something. The commands before the one that is hit are
// forwarded; of their answers, those that had not been delivered yet are lost as
// well, for nothing is delivered out of order or with a gap.
var (
	// LoseRequest swallows the command and everything after it, both ways. The
	// connection stays open and silent.
	LoseRequest = Action{kind: loseRequest}
	// LoseRequestCut is LoseRequest, and then closes the connection.
	LoseRequestCut = Action{kind: loseRequestCut}
	// LoseReply forwards the command and swallows everything that the server
	// sends from then on. The connection stays open and silent, and what the
	// client sends on it still reaches the server.
	LoseReply = Action{kind: loseReply}
	// LoseReplyCut forwards the command, waits until the server has answered
	// it, and closes the connection without delivering the answer.
	LoseReplyCut = Action{kind: loseReplyCut}
)

// Delay holds the command back for d, and with it what follows on its
// connection, in addition to the delay of SetDelay.
func Delay(d time.Duration) Action { return Action{kind: delayRequest, delay: d} }

// Rule is a fault that waits for one command.
type Rule struct {
	match []byte
	act   Action
	fired chan struct{}
	once  sync.Once
}

// On makes the proxy look for a command, from now on, whose bytes contain match
// (a key, a channel, a script's digest, "\r\nEXPIRE\r\n" for a name and nothing
// else), and lets a happen to the first one, on whatever connection. A command
// fires one rule only, the oldest that matches and has not fired: of two rules
// for the same match the second hits the second such command.
//
// It looks at whole commands as clients send them, also at several in one
// packet, not at those inside a script.
//
// LoseReply and LoseReplyCut send a PING after the command, on the same
// connection, whose answer shows that the command's own has come before: a
// command count has one more PING then. Inside MULTI that answer does not come
// until EXEC, so aim at the EXEC.
func (p *Proxy) On(match string, a Action) *Rule {
	r := &Rule{match: []byte(match), act: a, fired: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
	return r
}

// Forget ends all rules that have not fired: nothing happens to any command by them.
func (p *Proxy) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = nil
}

// Fired is closed when the rule has done its work:
//
//	LoseRequest     the connection is silent
//	LoseRequestCut  the connection is closed
//	LoseReply       the server has answered the command
//	LoseReplyCut    the server has answered it, and the connection is closed
//	Delay           the command has come and is held back
//
// It is closed in any case when the connection ends after the command came.
func (r *Rule) Fired() <-chan struct{} { return r.fired }

func (r *Rule) fire() { r.once.Do(func() { close(r.fired) }) }

// apply turns the command that has fired the rule into what happens in its
// place, and says whether what follows is still of interest.
func (r *Rule) apply(c *conn, cmd []byte, due time.Time) (it item, more bool) {
	c.atEnd(r.fire)
	switch r.act.kind {
	case loseRequest:
		return item{due: due, after: func() { c.kill(Both); r.fire() }}, false
	case loseRequestCut:
		return item{due: due, after: c.close}, false
	case delayRequest:
		r.fire()
		return item{due: due.Add(r.act.delay), data: cmd}, true
	}
	answered := r.fire
	if r.act.kind == loseReplyCut {
		answered = c.close
	}
	token := barrierToken()
	return item{
		due:    due,
		data:   slices.Concat(cmd, barrier(token)),
		before: func() { c.kill(ToClient); c.await(token, answered) },
	}, true
}

// barrierToken returns a text that no server sends unless it was asked to.
func barrierToken() []byte { return []byte("proxy-" + rand.Text()) }

// barrier is a command that is allowed on every connection, also one with
// subscriptions, and answered with the token.
func barrier(token []byte) []byte {
	return fmt.Appendf(nil, "*2\r\n$4\r\nPING\r\n$%d\r\n%s\r\n", len(token), token)
}
