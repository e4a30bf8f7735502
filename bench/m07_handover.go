package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/proxy"
)

var handOver = measure{
	No: 7, Name: "hand-over over a network", etcd: true,
	Situation: "from calling Unlock in one Client to Lock returning in another that waits, through a network of 5 ms each way; in round trips as a request has them that does nothing (PING) at the same time",
	run: func(s *servers, sc *scale) (*report, error) {
		far, err := newNetwork(s.place, 5*time.Millisecond)
		if err != nil {
			return nil, err
		}
		defer far.close()
		list := shared()
		var duels []*duel
		for _, c := range list {
			near, err := join(c, s.place) // loads the scripts: some cannot do that over such a network
			if err != nil {
				return nil, err
			}
			near.close()
			d, err := newDuel(c, far.place)
			if err != nil {
				return nil, err
			}
			defer d.close()
			duels = append(duels, d)
		}
		times := map[string][]float64{}
		pings := map[store][]float64{}
		r := &report{}
		err = rounds{N: sc.handOvers}.byTurns(len(list), func(i int) error {
			if duels[i].failures == mostFailures {
				return nil
			}
			ping, err := far.ping(list[i].store)
			if err != nil {
				return err
			}
			var took time.Duration
			err = watched(func() (err error) {
				took, err = duels[i].handOver()
				return err
			})
			if err != nil {
				took = watchLimit
				r.Notes = append(r.Notes, fmt.Sprintf("%s, hand-over %d: %v; counted as that long.", list[i].name, len(times[list[i].name])+1, err))
				if err := duels[i].again(); err != nil {
					return err
				}
			}
			pings[list[i].store] = append(pings[list[i].store], ping.Seconds())
			times[list[i].name] = append(times[list[i].name], took.Seconds())
			return nil
		})
		if err != nil {
			return nil, err
		}
		p50 := metric{Name: "p50", Unit: trips, Of: map[string]float64{}}
		p99 := metric{Name: "p99", Unit: trips, Of: map[string]float64{}}
		for _, c := range list {
			trip := median(pings[c.store])
			p50.Of[c.name] = quantile(times[c.name], 0.5) / trip
			p99.Of[c.name] = quantile(times[c.name], 0.99) / trip
		}
		r.Metrics = []metric{p50.atMost(1.05), p99.atMost(1.2)}
		r.Charts = []chart{bars("07-hand-over", "From Unlock to the next one's Lock, 10 ms of round trip between", "round trips, median (shorter is better)", p50)}
		r.Notes = append(r.Notes, fmt.Sprintf("A round trip: %s to Valkey (p99 %s)%s. %d hand-overs of each.",
			showTime(median(pings[inValkey])), showTime(quantile(pings[inValkey], 0.99)), etcdTrip(pings[inEtcd]), sc.handOvers))
		return r, nil
	},
}

func etcdTrip(pings []float64) string {
	if len(pings) == 0 {
		return ""
	}
	return ", " + showTime(median(pings)) + " to etcd"
}

// network is a way to the stores that takes its time.
type network struct {
	place place
	pings map[store]func() error
	ends  []func()
}

func newNetwork(p place, delay time.Duration) (_ *network, err error) {
	n := &network{pings: map[store]func() error{}}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	toValkey, err := proxy.Listen(p.Valkey)
	if err != nil {
		return nil, err
	}
	n.ends = append(n.ends, toValkey.Close)
	toValkey.SetDelay(delay, delay)
	n.place.Valkey = toValkey.Addr()
	conn, err := valkey.NewClient(n.place.valkeyOption())
	if err != nil {
		return nil, err
	}
	n.ends = append(n.ends, conn.Close)
	n.pings[inValkey] = func() error { return conn.Do(context.Background(), conn.B().Ping().Build()).Error() }
	if p.Etcd == "" {
		return n, nil
	}
	toEtcd, err := newSlowLine(p.Etcd, delay)
	if err != nil {
		return nil, err
	}
	n.ends = append(n.ends, toEtcd.close)
	n.place.Etcd = toEtcd.addr()
	ping, end, err := etcdPing(n.place)
	if err != nil {
		return nil, err
	}
	n.ends = append(n.ends, end)
	n.pings[inEtcd] = ping
	return n, ping()
}

// ping is how long a request takes that does nothing.
func (n *network) ping(s store) (time.Duration, error) {
	start := time.Now()
	err := n.pings[s]()
	return time.Since(start), err
}

func (n *network) close() {
	for _, v := range slices.Backward(n.ends) {
		v()
	}
}

// duel is two members that hand a lock to each other.
type duel struct {
	contestant
	members  [2]member
	lockers  [2]locker
	from     int
	failures int
}

// mostFailures is how often a contestant may fail before it takes part no longer.
const mostFailures = 3

func newDuel(c contestant, p place) (*duel, error) {
	d := &duel{contestant: c}
	for i := range d.members {
		m, err := join(c, p)
		if err != nil {
			return nil, err
		}
		d.members[i] = m
	}
	return d, d.meet()
}

// meet has both come to a key of their own.
func (d *duel) meet() (err error) {
	for i, m := range d.members {
		if d.lockers[i], err = m.locker(fmt.Sprintf("duel-%s-%d", d.name, d.failures)); err != nil {
			return err
		}
	}
	return nil
}

// again is for a lock that has failed: they go on with another key.
func (d *duel) again() error {
	d.failures++
	return d.meet()
}

// handOver has one lock, the other wait, and tells how long after the call of Unlock the other has it. It
// goes the other way each time.
func (d *duel) handOver() (time.Duration, error) {
	from, to := d.lockers[d.from], d.lockers[1-d.from]
	d.from = 1 - d.from
	ctx := context.Background()
	if err := from.Lock(ctx); err != nil {
		return 0, err
	}
	type arrival struct {
		at  time.Time
		err error
	}
	got := make(chan arrival, 1)
	go func() {
		err := to.Lock(ctx)
		got <- arrival{time.Now(), err}
	}()
	// Time for the waiter to wait, and for those that ask again and again to be anywhere in their pause.
	time.Sleep(60*time.Millisecond + rand.N(100*time.Millisecond))
	start := time.Now()
	if err := from.Unlock(ctx); err != nil {
		return 0, err
	}
	a := <-got
	if a.err != nil {
		return 0, a.err
	}
	return a.at.Sub(start), to.Unlock(ctx)
}

func (d *duel) close() {
	for _, m := range d.members {
		m.close()
	}
}
