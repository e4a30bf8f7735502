package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync"
)

var rows = measure{
	No: 8, Name: "many wait",
	Situation: "one Client holds a lock and others wait for it, each a process of its own to the server; first nothing happens, then the holder unlocks, again and again. Crash detection is on, as it is by default",
	run: func(s *servers, sc *scale) (*report, error) {
		r := &report{}
		for _, n := range sc.rows {
			idle, release, err := measureRow(s, n, sc)
			if err != nil {
				return nil, err
			}
			r.Metrics = append(r.Metrics,
				metric{Name: fmt.Sprintf("commands a release, %d wait", n), Unit: commands, Of: map[string]float64{ours.name: release}}.atMost(3),
				metric{Name: fmt.Sprintf("commands a second, %d wait, nothing happens", n), Unit: commands, Of: map[string]float64{ours.name: idle}}.atMost(3),
			)
		}
		r.Notes = append(r.Notes, "valkey-go's own PINGs (one a second on each connection) are not counted.")
		return r, nil
	},
}

// row is one Client that holds and others that wait.
type row struct {
	conns   []valkey.Client
	clients []*valkeysync.Client
	holder  *valkeysync.Mutex
	waiting int
	got     chan *valkeysync.Mutex // who has just become the holder
}

// measureRow tells how many commands are sent in a second in which nothing happens, and how many for one
// release, until the next one has the lock.
func measureRow(s *servers, waiting int, sc *scale) (idle, release float64, err error) {
	eye, err := newRow(s.place, 1)
	if err != nil {
		return 0, 0, err
	}
	defer eye.close()
	w := &wire{}
	p := s.place
	p.wire = w
	r, err := newRow(p, waiting+1)
	if err != nil {
		return 0, 0, err
	}
	defer r.close()

	key := fmt.Sprintf("row-%d", waiting)
	r.wait(key)
	for {
		st, err := eye.clients[0].Status(context.Background(), key)
		if err != nil {
			return 0, 0, err
		}
		if st.Waiting == waiting {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(2 * time.Second) // the one at the front begins to watch the key
	before := w.total()
	time.Sleep(sc.idle)
	idle = float64(w.total()-before) / sc.idle.Seconds()

	n := min(sc.releases, waiting-1)
	before = w.total()
	for range n {
		r.next()
		time.Sleep(5 * time.Millisecond) // what comes after it belongs to it
	}
	release = float64(w.total()-before) / float64(n)
	for r.waiting > 0 {
		r.next()
	}
	r.holder.Unlock()
	return idle, release, nil
}

func newRow(p place, n int) (*row, error) {
	r := &row{got: make(chan *valkeysync.Mutex, n)}
	for i := range n {
		if i%clientsPerConn == 0 {
			conn, err := valkey.NewClient(p.valkeyOption())
			if err != nil {
				r.close()
				return nil, err
			}
			r.conns = append(r.conns, conn)
		}
		c, err := valkeysync.New(r.conns[len(r.conns)-1], quiet)
		if err != nil {
			r.close()
			return nil, err
		}
		r.clients = append(r.clients, c)
	}
	return r, nil
}

// wait has the first hold and all others wait.
func (r *row) wait(key string) {
	r.holder = r.clients[0].Mutex(key)
	r.holder.Lock()
	r.waiting = len(r.clients) - 1
	for _, c := range r.clients[1:] {
		m := c.Mutex(key)
		go func() {
			m.Lock()
			r.got <- m
		}()
	}
}

// next has the holder unlock and the next one lock.
func (r *row) next() {
	r.holder.Unlock()
	r.holder = <-r.got
	r.waiting--
}

func (r *row) close() {
	_ = together(len(r.clients), func(i int) error { return r.clients[i].Close() }) // it returns nil
	for _, c := range slices.Backward(r.conns) {
		c.Close()
	}
}
