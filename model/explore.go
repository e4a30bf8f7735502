package model

import "slices"

import "time"

// Result is what an exploration found.
type Result struct {
	States   int
	Whole    bool // every state that can be reached was
	Served   int  // the most ticks that a waiter waited after the faults
	Left     int  // the most ticks that something stayed taken
	Depth    int
	Duration time.Duration
	Found    map[Violation]Schedule
}

// Schedule is the shortest way to a violation, in words.
type Schedule []string

// explorer keeps of each state no more than its hash, where it came from and by which step, so that a
// schedule can be walked again.
type explorer struct {
	*Model
	seen   map[key]struct{}
	parent []uint32
	step   []uint8
	found  map[Violation]uint32
	result Result
}

// Explore goes through all states of a configuration, breadth first, up to max states. It stops when it has
// found the violation that the configuration wants; with first, at any.
func Explore(c Config, max int, first bool) Result {
	e := &explorer{Model: &Model{c}, seen: map[key]struct{}{}, found: map[Violation]uint32{}}
	began := time.Now()
	e.run(max, first)
	e.result.States = len(e.parent)
	e.result.Duration = time.Since(began)
	e.result.Found = map[Violation]Schedule{}
	for v, id := range e.found {
		e.result.Found[v] = e.schedule(v, id)
	}
	return e.result
}

func (e *explorer) run(max int, first bool) {
	start := e.initial()
	e.canon(&start)
	e.seen[start.key()] = struct{}{}
	e.parent, e.step = append(e.parent, 0), append(e.step, 0)
	level, ids := []State{start}, []uint32{0}
	for len(level) > 0 {
		e.result.Depth++
		var next []State
		var nextIDs []uint32
		for k := range level {
			n := uint8(0)
			e.steps(&level[k], func(_ event, t *State) {
				n++
				e.canon(t)
				key := t.key()
				if _, ok := e.seen[key]; ok {
					return
				}
				e.seen[key] = struct{}{}
				id := uint32(len(e.parent))
				e.parent, e.step = append(e.parent, ids[k]), append(e.step, n)
				if e.judge(t, id) {
					next, nextIDs = append(next, *t), append(nextIDs, id)
				}
			})
			if _, ok := e.found[e.Want]; ok || first && len(e.found) > 0 || len(e.parent) >= max {
				return
			}
		}
		level, ids = next, nextIDs
	}
	e.result.Whole = true
}

// judge looks for violations, and reports whether what comes after the state is of interest.
func (e *explorer) judge(s *State, id uint32) bool {
	if e.certain(s) > e.Size {
		e.note(TooMany, id)
		return false
	}
	if s.fell {
		e.note(TokenFell, id)
		return false
	}
	if !e.covered(s) {
		e.note(NotCovered, id)
	}
	if s.twice() {
		e.note(Twice, id)
	}
	if e.Serve == 0 {
		return true
	}
	for _, drop := range []bool{false, true} {
		if drop && s.nRequests == 0 {
			break
		}
		suffix := Violation("")
		if drop {
			suffix = " (requests lost)"
		}
		f := e.finish(*s, drop, nil)
		e.result.Served, e.result.Left = max(e.result.Served, f.served), max(e.result.Left, f.left)
		switch {
		case f.served < 0:
			e.note(NeverIn+suffix, id)
		case f.served > e.Serve:
			e.note(ServedLate+suffix, id)
		case e.Clean > 0 && (f.left < 0 || f.left > e.Clean):
			e.note(LeftTaken+suffix, id)
		}
	}
	return true
}

// note keeps the first of each kind: the search is breadth first, so it is the shortest.
func (e *explorer) note(v Violation, id uint32) {
	if _, ok := e.found[v]; !ok {
		e.found[v] = id
	}
}

// certain is the weight of all holds that their clients take for certain.
func (m *Model) certain(s *State) int8 {
	sum := int8(0)
	for ci := range int8(m.Clients) {
		if c := &s.clients[ci]; !c.dead && c.phase == holding && s.now < m.deadline(ci, c) {
			sum += m.Weight[ci]
		}
	}
	return sum
}

// covered: whoever is certain has the hold on the server, for at least as long.
func (m *Model) covered(s *State) bool {
	for ci := range int8(m.Clients) {
		c := &s.clients[ci]
		if c.dead || c.phase != holding || s.now >= m.deadline(ci, c) {
			continue
		}
		i := s.owned(request{client: ci, attempt: c.attempt, number: c.number})
		if i < 0 || s.holds[i].end < m.deadline(ci, c) {
			return false
		}
	}
	return true
}

// twice: an attempt has two holds, two places, or both.
func (s *State) twice() bool {
	for i, h := range s.holds[:s.nHolds] {
		if s.holdOf(h.client, h.attempt) != int8(i) || s.placeOf(h.client, h.attempt) >= 0 {
			return true
		}
	}
	for i, p := range s.queue[:s.nQueue] {
		if s.placeOf(p.client, p.attempt) != int8(i) {
			return true
		}
	}
	return false
}

// schedule walks to a state again and tells the way.
func (e *explorer) schedule(v Violation, id uint32) Schedule {
	var steps []uint8
	for ; id != 0; id = e.parent[id] {
		steps = append(steps, e.step[id])
	}
	s := e.initial()
	e.canon(&s)
	var out Schedule
	for _, step := range slices.Backward(steps) {
		n := uint8(0)
		var next State
		var what event
		e.steps(&s, func(ev event, t *State) {
			if n++; n == step {
				next, what = *t, ev
			}
		})
		e.canon(&next)
		s = next
		out = append(out, e.line(what, &s))
	}
	if v != TooMany && v != TokenFell && v != NotCovered {
		drop := len(v) > 0 && v[len(v)-1] == ')'
		e.finish(s, drop, func(text string, s *State) {
			if len(out) < 80 {
				out = append(out, "  then "+e.describe(text, s))
			}
		})
	}
	return out
}
