package valkeysync

import "time"

// row is one Client that holds a mutex and others that wait for it.
type row struct {
	s       *situation
	key     string
	holder  *Mutex
	waiting int
	idle    []*Mutex    // neither hold nor wait
	got     chan *Mutex // what has just become the holder
}

// newRow makes a row in which that many Clients wait.
func newRow(s *situation, waiting int, opts ...Option) *row {
	r := &row{s: s, key: s.tb.Name(), got: make(chan *Mutex, waiting)}
	for _, c := range s.clients(waiting+1, opts...) {
		r.idle = append(r.idle, c.Mutex(r.key))
	}
	r.holder, r.idle = r.idle[0], r.idle[1:]
	r.holder.Lock()
	r.fill()
	return r
}

// fill has all who are idle wait, one by one.
func (r *row) fill() {
	for _, m := range r.idle {
		go func() {
			m.Lock()
			r.got <- m
		}()
		r.waiting++
		r.s.queued(r.key, r.waiting)
	}
	r.idle = nil
}

// next has the holder unlock and the next one lock.
func (r *row) next() {
	r.holder.Unlock()
	r.idle = append(r.idle, r.holder)
	r.holder = <-r.got
	r.waiting--
}

// end has all have their turn.
func (r *row) end() {
	for r.waiting > 0 {
		r.next()
	}
	r.holder.Unlock()
}

// readers are Clients that wait behind a writer to read.
type readers struct {
	s       *situation
	key     string
	writer  *RWMutex
	readers []*RWMutex
	in      chan struct{}
}

func newReaders(s *situation, n int, opts ...Option) *readers {
	r := &readers{s: s, key: s.tb.Name(), in: make(chan struct{}, n)}
	for _, c := range s.clients(n+1, opts...) {
		r.readers = append(r.readers, c.RWMutex(r.key))
	}
	r.writer, r.readers = r.readers[0], r.readers[1:]
	return r
}

// gather has the writer lock and all readers wait.
func (r *readers) gather() {
	r.writer.Lock()
	for _, reader := range r.readers {
		go func() {
			reader.RLock()
			r.in <- struct{}{}
		}()
	}
	r.s.queued(r.key, len(r.readers))
}

// letIn has the writer unlock, and returns when the last reader is in.
func (r *readers) letIn() {
	r.writer.Unlock()
	for range r.readers {
		<-r.in
	}
}

func (r *readers) leave() {
	for _, reader := range r.readers {
		reader.RUnlock()
	}
}

// await blocks until n commands of that name were sent.
func (s *situation) await(name string, n int) {
	s.tb.Helper()
	within(s.tb, 30*time.Second, "await "+name, func() { s.wire.await(name, n) })
}

// spent is how many commands f has clients send, in all and by name.
func (s *situation) spent(f func()) (total int, names map[string]int) {
	before := s.wire.counts()
	f()
	names = s.wire.counts()
	for name, n := range names {
		total += n - before[name]
		if names[name] -= before[name]; names[name] == 0 {
			delete(names, name)
		}
	}
	return total, names
}
