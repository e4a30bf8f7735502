package valkeysync

import (
	"context"
	"time"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// take asks all servers for the key at the same time, and reports whether a majority has it for us; done ends
// the wait. It takes two round trips:
//
//   - The key, on all. The token's number is the highest of those that the majority gives.
//   - That number, on those that gave a lower one: a majority of the servers must know it before anybody is told
//     of the token. If it were only brought there with the first renewal, a holder that dies before that would
//     leave a majority behind in which another is given a lower token. It counts only where the key is still
//     ours: then whoever has it there next is given its number afterwards.
//
// Where there will be no majority the other servers have a moment more to answer, so that the error has their
// reasons too.
func (s *stake) take(done <-chan struct{}) bool {
	s.lock()
	defer s.unlock()
	s.eachLocked(nil, s.takeAt)
	yes := func(p *share) bool { return p.yes }
	if !s.await(done, s.settled(yes)) {
		return false
	}
	if s.count(yes) < s.q.need {
		s.hearOut()
		return false
	}
	for i := range s.parts {
		s.number = max(s.number, s.parts[i].number)
	}
	for i := range s.parts {
		s.parts[i].marked = s.parts[i].number == s.number
	}
	marked := func(p *share) bool { return p.marked && p.yes }
	s.eachLocked(func(p *share) bool { return p.yes && !p.marked }, s.mark)
	return s.await(done, s.settled(marked)) && s.count(marked) >= s.q.need && time.Now().Before(*s.certain.Load())
}

// hearOut waits for the answers that are still to come, for as long as a healthy server takes at most.
func (s *stake) hearOut() {
	late := make(chan struct{})
	t := time.AfterFunc(minPause, func() { close(late) })
	defer t.Stop()
	s.await(late, func() bool { return s.count(func(p *share) bool { return p.open > 0 }) == 0 })
}

// settled: it is known whether that is so of a majority.
func (s *stake) settled(so func(p *share) bool) func() bool {
	return func() bool {
		have := s.count(so)
		open := s.count(func(p *share) bool { return !so(p) && p.open > 0 })
		return have >= s.q.need || have+open < s.q.need
	}
}

func (s *stake) takeAt(i int) {
	p := &s.parts[i]
	r, sent, ok := s.ask(i, true, func(ctx context.Context, server *protocol.Server, latest int64) (protocol.Reply, error) {
		return server.QuorumTake(ctx, s.keys, s.value, s.opts.lease, latest)
	})
	defer s.unlock()
	switch {
	case !ok:
	case r.Outcome != protocol.Held:
		s.refuseLocked(i, r)
	default:
		lease := s.opts.lease
		if r.Remaining != protocol.Forever {
			lease = min(lease, r.Remaining)
		}
		p.number = r.Number
		s.bindLocked(i, sent, lease)
		if p.marked = s.number > 0 && r.Number >= s.number; s.number > 0 && !p.marked { // the majority was there before it
			s.eachLocked(func(other *share) bool { return other == p }, s.mark)
		}
	}
}

func (s *stake) mark(i int) {
	s.keepAt(i, s.opts.lease, false)
	s.unlock()
}

// keepAt sets the lease at one server anew; where the key is gone there and create says so, sets it again. It
// returns with the mutex held.
func (s *stake) keepAt(i int, lease time.Duration, create bool) (held bool) {
	s.lock()
	number := s.number
	s.unlock()
	r, sent, ok := s.ask(i, create, func(ctx context.Context, server *protocol.Server, latest int64) (protocol.Reply, error) {
		return server.QuorumKeep(ctx, s.keys, s.value, lease, number, latest)
	})
	switch {
	case !ok:
		return false
	case r.Outcome == protocol.Held:
		s.parts[i].marked = true
		s.bindLocked(i, sent, lease)
		return true
	}
	s.refuseLocked(i, r)
	return false
}
