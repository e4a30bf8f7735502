package valkeysync

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/valkeysync/valkeysync/internal/fault"
)

// Option sets one thing of a Client or of one primitive. An option given to New is the default of every
// primitive made from that Client. A value that cannot be used is an error: from New, or where the
// option was given to a primitive from that primitive's first use.
type Option func(*options)

// options are what one primitive goes by.
type options struct {
	lease     time.Duration
	maxHold   time.Duration
	reentrant bool
	owner     string
	grace     time.Duration
	turn      time.Duration
	linger    time.Duration
	replicas  int
	onLost    func(key string, err error)
	tracer    Tracer

	contest *contest // set: of a lock on a majority of several servers

	client clientOptions
	made   bool // New is done: the Client's own options come too late
	errs   []string
}

// clientOptions belong to the Client as a whole.
type clientOptions struct {
	prefix    string
	name      string
	logger    *slog.Logger
	configure bool
}

const (
	minLease     = 100 * time.Millisecond
	maxLease     = 30 * 24 * time.Hour
	defaultLease = 10 * time.Second
	minGrace     = 100 * time.Millisecond
	defaultGrace = 2 * time.Second
	defaultTurn  = 2500 * time.Microsecond
	maxTurn      = time.Second
	maxName      = 128
)

func defaultOptions() options {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	return options{
		lease: defaultLease,
		grace: defaultGrace,
		turn:  defaultTurn,
		client: clientOptions{
			name:   printable(fmt.Sprintf("%s/%s[%d]", host, filepath.Base(os.Args[0]), os.Getpid())),
			logger: slog.Default(),
		},
	}
}

// printable makes a name of whatever the system calls host and program.
func printable(name string) string {
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, name)
	return strings.ToValidUTF8(name[:min(len(name), maxName)], "")
}

func (o *options) refuse(format string, args ...any) {
	o.errs = append(o.errs, fmt.Sprintf(format, args...))
}

func (o *options) ofClient(name string) bool {
	if o.made {
		o.refuse("%s is an option of the whole Client: give it to New", name)
	}
	return !o.made
}

func (o *options) apply(opts []Option) error {
	for _, opt := range opts {
		if opt == nil {
			o.refuse("a nil Option: leave it out")
			continue
		}
		opt(o)
	}
	if o.linger > o.lease/2 {
		o.refuse("WithLinger(%v): give at most half the lease, which is %v", o.linger, o.lease)
	}
	if len(o.errs) > 0 {
		return fault.Errorf("%w: %s", ErrInvalidOption, strings.Join(o.errs, "; "))
	}
	return nil
}

// WithPrefix puts prefix before every key. Default: none. For New only.
func WithPrefix(prefix string) Option {
	return func(o *options) {
		if o.ofClient("WithPrefix") {
			o.client.prefix = prefix
		}
	}
}

// WithName is how this Client is shown to people, in Status and in errors of those who wait. Default:
// host/program[pid]. At most 128 bytes, printable. For New only.
func WithName(name string) Option {
	return func(o *options) {
		if !o.ofClient("WithName") {
			return
		}
		if name == "" || len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
			o.refuse("WithName(%q): give 1 to %d bytes of printable text", name, maxName)
			return
		}
		o.client.name = name
	}
}

// WithLogger takes what nobody can be told by an error: retries of Lock, late unlocks, lost connections.
// Default: slog.Default(). For New only.
func WithLogger(l *slog.Logger) Option {
	return func(o *options) {
		if !o.ofClient("WithLogger") {
			return
		}
		if l == nil {
			o.refuse("WithLogger(nil): leave the option out for slog.Default(), or give slog.New(slog.DiscardHandler)")
			return
		}
		o.client.logger = l
	}
}

// WithKeyspaceNotifications lets New set the server's notify-keyspace-events so that waiters are woken by
// what does not pass through an Unlock of ours (an operator's DEL, a lease that ran out, a holder that uses
// another library): the flags K, g, x and e are added to what is there. It needs the right to CONFIG SET.
// Without the option New only finds out whether they are on; see Stats. For New only.
func WithKeyspaceNotifications() Option {
	return func(o *options) {
		if o.ofClient("WithKeyspaceNotifications") {
			o.client.configure = true
		}
	}
}

// WithLease is how long a hold lasts on the server without being renewed: how long the others wait when a
// holder hangs or is cut off. It is renewed every third of it for as long as it is held, so it need not be
// longer than the work. Default 10 s; from 100 ms to 30 days, in whole milliseconds. A lease that is short
// against pauses of the process or the network is lost more often.
func WithLease(d time.Duration) Option {
	return func(o *options) {
		if d < minLease || d > maxLease {
			o.refuse("WithLease(%v): give %v to %v (a number alone counts nanoseconds)", d, minLease, maxLease)
			return
		}
		o.lease = d.Truncate(time.Millisecond)
	}
}

// WithCrashDetection is how soon after the death of its holder a lock is free, whatever the lease: grace,
// and up to half a second or a quarter of it. Default 2 s; from 100 ms; 0 turns it off, so that only the
// lease decides.
//
// It works by connections: those of a process that died close, so the server has no subscriber any more to
// its channel, and the first who waits has the lease cut to the grace. The price is that a living holder
// must show, three times a grace, that the server still counts it: a holder that cannot reach the server
// for the grace has lost its lease (CauseUnreachable), however long that was to last. It costs 1.5 small
// commands a second, at the default, for a Client that holds anything, and two a second for a lock that
// somebody waits for. A process that is stopped (SIGSTOP, a debugger) keeps its connections: there the
// lease decides.
func WithCrashDetection(grace time.Duration) Option {
	return func(o *options) {
		if grace != 0 && (grace < minGrace || grace > maxLease) {
			o.refuse("WithCrashDetection(%v): give %v to %v, or 0 to turn it off", grace, minGrace, maxLease)
			return
		}
		o.grace = grace.Truncate(time.Millisecond)
	}
}

// WithTurn is how long the goroutines of one process may go on handing a Mutex or a permit over to each
// other, without the server, once another process waits for it: the turn of this process. As long as no
// other process waits, they do so freely. A longer turn gives more throughput, a shorter one lets the
// others wait less; the turn never cuts a critical section short. Default 2.5 ms; 0 to 1 s; 0 turns it off, so
// that every unlock goes through the server. Every acquisition has its own token all the same.
func WithTurn(d time.Duration) Option {
	return func(o *options) {
		if d < 0 || d > maxTurn {
			o.refuse("WithTurn(%v): give 0 (off) to %v", d, maxTurn)
			return
		}
		o.turn = d
	}
}

// WithLinger keeps a lock for up to d after the last unlock here, so that the next Lock of this process
// needs no server. Another process that queues for it gets it at once, one message later than it would
// without; one that only tries (TryLock) finds it locked. Where others wait already, the unlock of a Mutex keeps
// a place in the queue instead, for as long: the next Lock has had its request, and is served before those who
// come between. If the lock comes to a place that nobody here wants yet, it is passed on at once, by one message
// and one command, or kept where nobody else waits. It is for a lock that one process takes again and again.
// Default 0: off; at most half the lease, or it is an error.
func WithLinger(d time.Duration) Option {
	return func(o *options) {
		if d < 0 {
			o.refuse("WithLinger(%v): give a positive time, or 0 to turn it off", d)
			return
		}
		o.linger = d
	}
}

// WithReplicas has an acquisition count only once n replicas of the server that has the key have
// acknowledged it (WAIT), so that a failover to one of them does not lose it. Where fewer do, within 2 s or a
// third of the lease if that is less, it is given back: LockContext returns ErrNotReplicated with both
// numbers, Lock tries again. It costs one more round trip, on a connection of its own for that time, and the
// replicas' own. A hand-over inside this process goes on with a hold that has been acknowledged.
//
// It is no consensus: a failover may still choose a replica that does not have the lock, or the replica may
// lose it; the fencing token is what protects then. Default 0: off. Nothing is guessed from how many
// replicas there are, and the right to INFO is not needed, but that to WAIT is.
func WithReplicas(n int) Option {
	return func(o *options) {
		if n < 0 {
			o.refuse("WithReplicas(%d): give how many replicas, or 0 to turn it off", n)
			return
		}
		o.replicas = n
	}
}

// WithMaxHold ends a hold that lasts longer than d: from then on it is not renewed, so that the lease is
// lost (CauseMaxHold) at most one lease later. So a holder that hangs does not hold for ever. Default 0:
// no limit.
func WithMaxHold(d time.Duration) Option {
	return func(o *options) {
		if d < 0 {
			o.refuse("WithMaxHold(%v): give a positive time, or 0 for no limit", d)
			return
		}
		o.maxHold = d
	}
}

// WithReentrancy lets a Mutex or RWMutex be locked again with a context that carries it already, over
// function calls and goroutines: LockContext counts up and returns that context at once, without the server,
// and the last unlock gives the lock back. Read within write is allowed, and so is read within read while a
// writer waits; write within read is ErrDeadlock, for it would wait for itself. The hold, its lease and its
// token are the outer one's. Without the option such a call is ErrDeadlock.
//
// Ownership is the context's alone: a Lock without a context waits for itself, as in sync. It is not for a
// Semaphore, whose permits are nobody's. (The idea is that of recursive mutexes; that the context carries the
// ownership is what makes it safe to hand to other goroutines.)
func WithReentrancy() Option {
	return func(o *options) { o.reentrant = true }
}

// WithOwner makes a Mutex that an owner holds, and not one process alone: a workflow, say, that moves between
// services. All processes that name the same owner may hold it at the same time, each with a lease of its own;
// they come in past those who wait, and everybody else (another owner, a Mutex without one, a program with the
// plain recipe) is excluded until the last of them has left. What they do within it at the same time is theirs to
// arrange. For a Mutex only: 1 to 128 bytes of printable text. (A reentrant Redis lock as Redisson's keeps an
// owner and a count in a hash; here the count is that of the holds, so that the part of a process that died
// comes back.)
func WithOwner(id string) Option {
	return func(o *options) {
		switch {
		case !o.made:
			o.refuse("WithOwner(%q): give it to a Mutex, not to New", id)
		case id == "" || len(id) > maxName || strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) }):
			o.refuse("WithOwner(%q): give 1 to %d bytes of printable text", id, maxName)
		default:
			o.owner = id
		}
	}
}

// WithOnLost is called, on a goroutine of its own, for every acquisition whose lease is lost, after its
// context was cancelled. err is a *LostError. Close waits for it, so it must not call Close.
func WithOnLost(f func(key string, err error)) Option {
	return func(o *options) { o.onLost = f }
}

// WithTracer has t told of every acquisition: when it is asked for, when and how it is had or why not, and
// when and why it ends. It is for metrics and traces; package github.com/valkeysync/valkeysync/otel has one for
// OpenTelemetry. Default: nil, none.
//
// t is told of all primitives, a Quorum's too, and of all ways to lock them. It is not told of what is refused
// before anybody is asked (an invalid key, option or weight, a context that has ended or carries the lock
// already); nor of entering again ([WithReentrancy]), which begins no hold; nor of the release of a part of a
// semaphore's acquisition, which goes on until the last part. [Client.LockAll] is an acquisition of each key;
// where it gets all with one command it is told when it has them. [RWMutex.Downgrade] ends one and begins
// another.
//
// t is called by many goroutines at the same time, in the middle of locking and unlocking. It must not block,
// nor use the lock that it is told of. It should not panic: a panic of Acquire, Acquired, Failed, and of Released
// after an unlock, goes on in the call that it is told of, which leaves nothing held; one of Released after a
// loss ends the program. What it costs is t's own: without one, locking is as fast as ever.
func WithTracer(t Tracer) Option {
	return func(o *options) { o.tracer = t }
}
