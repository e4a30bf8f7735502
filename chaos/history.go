package chaos

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// What happened on one key as a history of calls for the checker of linearizability. A hold is two
// operations: the call that began it and whatever ended it. Where the end was not an unlock that the
// server confirmed, the lease may have lapsed at any time after the last moment at which the hold was
// certain, so the end is an operation from then on without a reply. A call that failed may have been
// granted all the same, for a while: it forks the states.

type stepKind int

const (
	stepTake   stepKind = iota // a call that returned with the lock
	stepEnd                    // unlock, or lapse
	stepFailed                 // a call without the lock, or without a reply: unknown
	stepBusy                   // a try that was told that somebody else has it
)

type step struct {
	kind    stepKind
	mode    Mode
	weight  int64
	group   int // of readers, and of an owner: who shares with it
	token   int64
	crowded bool // busy: others were at it, so it may be right whoever held
}

// maxSize is the largest size of a semaphore here.
const maxSize = 4

// lock is the model's state of one key.
type lock struct {
	writer  int64 // its token; 0: none
	readers int64
	group   int                // of the readers
	used    int64              // permits
	ghosts  bool               // a call that failed may hold it; it lapses by itself
	given   int64              // the highest token that the server gave out
	tops    [maxSize + 1]int64 // the highest token: of permits by weight, of others by group; 0: of writers
}

// model is the kind's model. The token of a hold is higher than those of all before it that it excludes.
//
// The strict model says more, which makes the search short: that the server gave the holds out in the order
// of their numbers. It is nearly always so. (A call may be served by a place that another call of its process
// had asked for, and that had been granted before it came.)
func model(k Key, strict bool) porcupine.Model {
	return (&porcupine.NondeterministicModel{
		Init: func() []any { return []any{lock{}} },
		Step: func(state, input, _ any) []any {
			s, in := state.(lock), input.(step)
			if in.kind == stepTake && in.token&handed == 0 {
				if strict && in.token <= s.given {
					return nil
				}
				s.given = max(s.given, in.token)
			}
			return k.step(s, in)
		},
	}).ToModel()
}

// handed are the bits of a token that count how often a hold was handed on inside its process.
const handed = 1<<10 - 1

func (k Key) step(s lock, in step) []any {
	switch in.kind {
	case stepTake:
		return k.take(s, in)
	case stepEnd:
		switch {
		case in.mode == Exclusive && s.writer == in.token:
			s.writer = 0
		case in.mode == Reader && s.readers > 0:
			s.readers--
		case in.mode == Permit && s.used >= in.weight:
			s.used -= in.weight
		default:
			return nil
		}
		return []any{s}
	case stepFailed:
		if s.free() && !s.ghosts {
			ghost := s
			ghost.ghosts = true
			return []any{s, ghost}
		}
		return []any{s}
	default: // busy
		if in.crowded || s.ghosts || !s.free() {
			return []any{s}
		}
		return nil
	}
}

func (s lock) free() bool { return s.writer == 0 && s.readers == 0 && s.used == 0 }

func (k Key) take(s lock, in step) []any {
	s.ghosts = false
	switch in.mode {
	case Exclusive:
		if !s.free() || in.token <= slices.Max(s.tops[:]) {
			return nil
		}
		s.writer = in.token
	case Reader:
		if s.writer != 0 || s.readers > 0 && s.group != in.group {
			return nil
		}
		for group, top := range s.tops {
			if group != in.group && in.token <= top {
				return nil
			}
		}
		s.readers++
		s.group = in.group
	case Permit:
		if s.used+in.weight > k.Size {
			return nil
		}
		for weight := k.Size - in.weight + 1; weight <= k.Size; weight++ {
			if in.token <= s.tops[weight] {
				return nil // higher than all that it excludes
			}
		}
		s.used += in.weight
		s.tops[in.weight] = max(s.tops[in.weight], in.token)
		return []any{s}
	}
	s.tops[in.group] = max(s.tops[in.group], in.token)
	return []any{s}
}

const historyLimit = 20 * time.Second

// history has the checker look at one key.
func (c *trial) history(k Key, ops []*op) {
	steps := c.steps(ops)
	if len(steps) == 0 {
		return
	}
	c.res.Histories += len(steps)
	if porcupine.CheckOperationsTimeout(model(k, true), steps, historyLimit) == porcupine.Ok {
		return
	}
	switch porcupine.CheckOperationsTimeout(model(k, false), steps, historyLimit) {
	case porcupine.Illegal:
		why := ""
		holds := slices.DeleteFunc(slices.Clone(steps), func(p porcupine.Operation) bool { return p.Input.(step).kind == stepBusy })
		if porcupine.CheckOperationsTimeout(model(k, false), holds, historyLimit) == porcupine.Ok {
			why = ": a try was told that somebody has it, and nobody had"
		}
		c.res.violate("the history of %s (%d operations) is none of a %s%s", k.Name, len(steps), k.Kind, why)
	case porcupine.Unknown:
		c.res.Undecided++
	}
}

func (c *trial) steps(ops []*op) []porcupine.Operation {
	ops = slices.DeleteFunc(slices.Clone(ops), func(o *op) bool {
		// What was robbed before it was told of its grant is no part of any order.
		from, excused := c.excuse(o)
		return o.token != 0 && excused && (o.from == 0 || from <= o.from)
	})
	var last int64
	for _, o := range ops {
		last = max(last, o.call, o.ret, o.end, o.sure) + 1
	}
	byToken := slices.DeleteFunc(slices.Clone(ops), func(o *op) bool { return o.token == 0 })
	slices.SortFunc(byToken, func(a, b *op) int { return cmp.Compare(a.token, b.token) })
	next := map[*op]int64{} // when the first returned that o excludes and that came after it
	for i, o := range slices.Backward(byToken) {

		next[o] = last
		for _, other := range byToken[i+1:] {
			if o.mode != Permit && o.excludes(other) {
				next[o] = other.ret
				break
			}
			if o.mode == Permit {
				break
			}
		}
	}
	var steps []porcupine.Operation
	add := func(call, ret int64, s step) {
		if ret < call {
			ret = last
		}
		steps = append(steps, porcupine.Operation{Call: call, Return: ret, Input: s})
	}
	for i, o := range ops {
		s := step{mode: o.mode, weight: o.weight, token: o.token}
		if o.mode == Reader {
			s.group = 2 + slices.Index(owners, o.owner)
		}
		switch {
		case o.token != 0:
			s.kind = stepTake
			add(o.call, o.ret, s)
			s.kind = stepEnd
			begin := c.until(o)
			switch {
			case o.from == 0:
				add(o.call, next[o], s)
			case o.out == outReleased && begin == o.sure:
				add(min(o.sure, o.unlock), o.end, s)
			default:
				add(begin, next[o], s)
			}
		case o.err == "locked":
			s.kind, s.crowded = stepBusy, c.crowded(i, ops)
			add(o.call, o.ret, s)
		default:
			s.kind = stepFailed
			add(o.call, o.ret, s)
		}
	}
	// Calls without the lock matter only to a try that was told "locked" with nobody else about.
	told := func(p porcupine.Operation) bool {
		s := p.Input.(step)
		return s.kind == stepBusy && !s.crowded
	}
	if !slices.ContainsFunc(steps, told) {
		steps = slices.DeleteFunc(steps, func(p porcupine.Operation) bool {
			s := p.Input.(step)
			return s.kind == stepBusy || s.kind == stepFailed
		})
	}
	return steps
}

// crowded: somebody else was at it while the i-th asked, or a call that failed before may have been served
// late.
func (c *trial) crowded(i int, ops []*op) bool {
	o, late := ops[i], int64(c.plan.longestLease()+serveSlack)
	at := func(other *op) bool {
		end := max(other.end, other.ret) + int64(longestLinger) // it may be kept for who had it
		if other.out != outReleased {
			end += late // whatever it had or has not yet lapses
		}
		return other.call <= o.ret && (end >= o.call || other.ret == 0)
	}
	for j := i - 1; j >= 0; j-- { // those close to it first
		if at(ops[j]) {
			return true
		}
	}
	return slices.ContainsFunc(ops[i+1:], at)
}
