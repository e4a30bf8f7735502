package valkeysync

import (
	"fmt"
	"slices"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// A model of the primitives: who is in, and who waits in which order, after each step, if every step is over
// before the next begins. model_run_test.go compares it with what several Clients and a server do.

// modelHold is one acquisition.
type modelHold struct {
	id, client int
	mode       protocol.Mode
	weight     int64
}

// modelEntry is a place in the server's queue.
type modelEntry struct {
	client int
	mode   protocol.Mode
	weight int64
}

// modelOfKey is one key.
type modelOfKey struct {
	kind    byte  // m, w, s
	size    int64 // in force
	foreign bool
	holds   []modelHold
	waiters []modelHold // in all processes, in the order in which they came
	queue   []modelEntry

	// What the last step did.
	in      []int // ids that got in
	refused []int // ids that were told of another size
	fresh   int   // the last so many places were taken in no certain order
}

func (m *modelOfKey) used() (sum int64) {
	for _, h := range m.holds {
		sum += h.weight
	}
	return sum
}

func (m *modelOfKey) fits(mode protocol.Mode, weight int64) bool {
	switch {
	case m.foreign:
		return false
	case mode == protocol.Permit:
		return m.used()+weight <= m.size
	case mode == protocol.Reader:
		return !slices.ContainsFunc(m.holds, func(h modelHold) bool { return h.mode == protocol.Exclusive })
	}
	return len(m.holds) == 0
}

func (m *modelOfKey) inUse() bool { return len(m.holds)+len(m.queue) > 0 }

// room says whether one who comes now gets in at once.
func (m *modelOfKey) room(mode protocol.Mode, weight int64) bool {
	return len(m.queue) == 0 && m.fits(mode, weight)
}

// acquire is a step: somebody asks. With try, one who cannot get in is gone again.
func (m *modelOfKey) acquire(h modelHold, size int64, try bool) {
	if m.kind == 's' {
		if m.inUse() && size != m.size {
			m.refused = append(m.refused, h.id)
			return
		}
		m.size = size
	}
	switch {
	case m.room(h.mode, h.weight) && !m.blocked(h.client):
		m.enter(h)
	case !try:
		m.waiters = append(m.waiters, h)
		m.start(h.client)
	}
}

func (m *modelOfKey) enter(h modelHold) {
	m.holds = append(m.holds, h)
	m.in = append(m.in, h.id)
}

// blocked: a process that holds exclusively queues when it unlocks.
func (m *modelOfKey) blocked(client int) bool {
	return slices.ContainsFunc(m.holds, func(h modelHold) bool { return h.client == client && h.mode == protocol.Exclusive })
}

// due is the first waiter of a process that has no place yet; readers first.
func (m *modelOfKey) due(client int) (modelHold, bool) {
	if m.blocked(client) {
		return modelHold{}, false
	}
	for _, mode := range modes {
		if slices.ContainsFunc(m.queue, func(e modelEntry) bool { return e.client == client && e.mode == mode }) {
			continue
		}
		for _, w := range m.waiters {
			if w.client == client && w.mode == mode {
				return w, true
			}
		}
	}
	return modelHold{}, false
}

// start has a process ask for those of its waiters that are due.
func (m *modelOfKey) start(client int) {
	for w, ok := m.due(client); ok; w, ok = m.due(client) {
		if m.room(w.mode, w.weight) {
			m.serve(modelEntry{w.client, w.mode, w.weight})
		} else {
			m.queue = append(m.queue, modelEntry{w.client, w.mode, w.weight})
			m.fresh++
		}
	}
}

// serve lets in whoever a place was for: with a reader all readers of its process.
func (m *modelOfKey) serve(e modelEntry) {
	m.waiters = slices.DeleteFunc(m.waiters, func(w modelHold) bool {
		if w.client != e.client || w.mode != e.mode || e.weight < 0 {
			return false
		}
		if e.mode != protocol.Reader {
			e.weight = -1 // the first alone
		}
		m.enter(w)
		return true
	})
}

// grant serves the queue; readers: a writer has left.
func (m *modelOfKey) grant(readers bool) {
	var served []int
	for i := 0; readers && i < len(m.queue); {
		if e := m.queue[i]; e.mode == protocol.Reader && m.fits(e.mode, e.weight) {
			m.queue = slices.Delete(m.queue, i, i+1)
			m.serve(e)
			served = append(served, e.client)
		} else {
			i++
		}
	}
	for len(m.queue) > 0 && m.fits(m.queue[0].mode, m.queue[0].weight) {
		e := m.queue[0]
		m.queue = m.queue[1:]
		m.serve(e)
		served = append(served, e.client)
	}
	for _, client := range served {
		m.start(client)
	}
}

// release is a step: an acquisition, or weight of it, is given back.
func (m *modelOfKey) release(id int, weight int64) {
	i := slices.IndexFunc(m.holds, func(h modelHold) bool { return h.id == id })
	h := m.holds[i]
	if weight < h.weight {
		m.holds[i].weight -= weight
		m.grant(false)
		return
	}
	m.holds = slices.Delete(m.holds, i, i+1)
	if w, ok := m.due(h.client); ok { // in the same request
		m.queue = append(m.queue, modelEntry{w.client, w.mode, w.weight})
	}
	m.grant(m.kind == 'w' && h.mode == protocol.Exclusive)
	m.start(h.client)
}

// downgrade is a step: a writer becomes a reader.
func (m *modelOfKey) downgrade(id, reader int) {
	i := slices.IndexFunc(m.holds, func(h modelHold) bool { return h.id == id })
	client := m.holds[i].client
	m.holds = slices.Delete(m.holds, i, i+1)
	m.queue = slices.DeleteFunc(m.queue, func(e modelEntry) bool { return e.client == client && e.mode == protocol.Reader })
	m.enter(modelHold{reader, client, protocol.Reader, 1})
	m.serve(modelEntry{client, protocol.Reader, 1})
	m.grant(true)
	m.start(client)
}

// giveUp is a step: a waiter's context ends. Another one here that wants the same has its place.
func (m *modelOfKey) giveUp(id int) {
	i := slices.IndexFunc(m.waiters, func(w modelHold) bool { return w.id == id })
	gone := m.waiters[i]
	m.waiters = slices.Delete(m.waiters, i, i+1)
	if !slices.ContainsFunc(m.waiters, func(w modelHold) bool { return w.client == gone.client && w.mode == gone.mode }) {
		m.queue = slices.DeleteFunc(m.queue, func(e modelEntry) bool { return e.client == gone.client && e.mode == gone.mode })
	}
	m.grant(false)
}

// force is a step: all who hold lose it. It returns who does.
func (m *modelOfKey) force() (lost []modelHold) {
	lost = m.holds
	writer := m.kind == 'w' && len(lost) == 1 && lost[0].mode == protocol.Exclusive
	m.holds, m.foreign = nil, false
	m.grant(writer)
	for _, h := range lost {
		m.start(h.client)
	}
	return lost
}

// resize is a step: who waits by another size is told so.
func (m *modelOfKey) resize(size int64) {
	if !m.inUse() || size == m.size {
		return
	}
	m.size = size
	for _, w := range m.waiters {
		m.refused = append(m.refused, w.id)
	}
	m.waiters, m.queue = nil, nil
}

// plain is a step: another program takes the key, if it may.
func (m *modelOfKey) plain() (ok bool) {
	ok = len(m.holds) == 0 && !m.foreign
	m.foreign = m.foreign || ok
	return ok
}

// plainEnds is a step: the other program gives the key back.
func (m *modelOfKey) plainEnds() {
	m.foreign = false
	m.grant(false)
}

func (m *modelOfKey) String() string {
	return fmt.Sprintf("size %d, foreign %v, holds %v, waiters %v, queue %v", m.size, m.foreign, m.holds, m.waiters, m.queue)
}
