package valkeysync

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/proxy"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// Every benchmark runs what is measured and its baseline by turns, in one run, on one server: on a shared
// machine only what was measured together can be compared. ns/op, cmds/op and allocs/op are ours,
// recipe-… those of the plain recipe (SET NX PX, compare-and-delete script), and ratio is the median, over
// the turns, of the time of ours / recipe. cmds are commands that clients sent (see wire).
//
// Counts that must not be exceeded are tests: bench_bars_test.go.

// smoke: the benchmark only has to show that it runs.
func smoke() bool { return flag.Lookup("test.benchtime").Value.String() == "1x" }

// cost is what one side of a comparison has cost.
type cost struct {
	ops  int // that were timed
	time time.Duration

	counted, cmds int // operations that were counted
	allocs, bytes uint64
}

// clock adds the time of n operations, which f does, and returns it.
func (c *cost) clock(n int, f func(n int)) time.Duration {
	took := since(func() { f(n) })
	c.ops += n
	c.time += took
	return took
}

// count adds what n operations, which f does, cost besides time.
func (c *cost) count(w *wire, n int, f func(n int)) {
	var before, after runtime.MemStats
	cmds := w.total()
	runtime.ReadMemStats(&before)
	f(n)
	runtime.ReadMemStats(&after)
	c.counted += n
	c.cmds += w.total() - cmds
	c.allocs += after.Mallocs - before.Mallocs
	c.bytes += after.TotalAlloc - before.TotalAlloc
}

// measure does both for one operation.
func (c *cost) measure(w *wire, f func()) {
	c.count(w, 1, func(int) { c.clock(1, func(int) { f() }) })
}

func (c *cost) report(b *testing.B, prefix string) {
	b.ReportAllocs() // shows what is reported here in place of its own
	n := float64(c.counted)
	b.ReportMetric(float64(c.time.Nanoseconds())/float64(c.ops), prefix+"ns/op")
	b.ReportMetric(float64(c.cmds)/n, prefix+"cmds/op")
	b.ReportMetric(float64(c.bytes)/n, prefix+"B/op")
	b.ReportMetric(float64(c.allocs)/n, prefix+"allocs/op")
}

// compare runs ours and the recipe by turns of that many operations, b.N each (or a little more), and reports both.
// ours and recipe do as many as they are told. A turn takes no longer than what disturbs it, or it is luck which of the
// two was disturbed: one pair of commands takes three times as long while the kernel has client and server on different
// cores, and it moves them every few milliseconds. What counting disturbs is counted afterwards.
func compare(b *testing.B, w *wire, turn int, ours, recipe func(n int)) {
	ours(turn) // the scripts get loaded, the connections opened
	recipe(turn)
	var us, them cost
	var ratios []float64
	w.paused.Store(true)
	b.ResetTimer()
	for us.ops < b.N {
		var t, base time.Duration
		first := func() { t = us.clock(turn, ours) }
		second := func() { base = them.clock(turn, recipe) }
		if len(ratios)%2 == 1 {
			first, second = second, first
		}
		first()
		second()
		ratios = append(ratios, float64(t)/float64(base))
	}
	b.StopTimer()
	w.paused.Store(false)
	us.count(w, us.ops/4+turn, ours)
	them.count(w, us.ops/4+turn, recipe)
	us.report(b, "")
	them.report(b, "recipe-")
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "ratio")
}

// quantile of durations, which it sorts.
func quantile(d []time.Duration, q float64) time.Duration {
	slices.Sort(d)
	return d[min(int(q*float64(len(d))), len(d)-1)]
}

func times(l sync.Locker) func(n int) {
	return func(n int) {
		for range n {
			l.Lock()
			l.Unlock()
		}
	}
}

// BenchmarkUncontended: lock and unlock, nobody else there.
func BenchmarkUncontended(b *testing.B) {
	s := newSituation(b, testserver.Start(b, testserver.Valkey))
	client := s.dial()
	c := newQuietClient(b, client)
	for _, p := range uncontended {
		b.Run("primitive="+p.name, func(b *testing.B) {
			compare(b, s.wire, 1, times(p.make(c, 0, b.Name())), times(newRecipe(client, "{"+b.Name()+"}/recipe")))
		})
	}
}

// BenchmarkContended: one holds and n Clients wait, always. An operation is one acquisition.
func BenchmarkContended(b *testing.B) {
	s := newSituation(b, testserver.Start(b, testserver.Valkey))
	clients := s.clients(201)
	client := s.dial()
	for _, p := range primitives {
		for _, waiting := range waitings {
			b.Run(fmt.Sprintf("primitive=%s/waiting=%d", p.name, waiting), func(b *testing.B) {
				ours := p.crowd(clients[:waiting+1], b.Name())
				var recipes []sync.Locker
				for range ours {
					recipes = append(recipes, newRecipe(client, "{"+b.Name()+"}/recipe"))
				}
				compare(b, s.wire, max(len(ours), b.N/50), func(n int) { contend(ours, n) }, func(n int) { contend(recipes, n) })
			})
		}
	}
}

// BenchmarkHandOver: from calling Unlock in one Client to Lock returning in another, in round trips as PING
// has them at the same time, through a network that delays every byte by 5 ms each way.
func BenchmarkHandOver(b *testing.B) {
	const delay = 5 * time.Millisecond
	b.Run("delay="+delay.String(), func(b *testing.B) {
		s := newSituation(b, testserver.Start(b, testserver.Valkey))
		p := proxy.Start(b, s.server.Addr())
		p.SetDelay(delay, delay)
		through := func(o *valkey.ClientOption) { o.InitAddress = []string{p.Addr()} }
		client := s.dial(through)
		m := []sync.Locker{
			newQuietClient(b, client).Mutex("ours"),
			newQuietClient(b, s.dial(through)).Mutex("ours"),
		}
		// Two connections of the recipe's own, so that its retries do not stand in each other's way.
		r := []sync.Locker{newRecipe(client, "recipe"), newRecipe(s.dial(through), "recipe")}

		var ours, recipes, pings []time.Duration
		var cost cost
		for i := range m { // loads the scripts
			times(m[i])(1)
			times(r[i])(1)
		}
		m[0].Lock()
		r[0].Lock()
		for i := range b.N {
			from, to := i%2, 1-i%2
			pings = append(pings, since(func() { require.NoError(b, client.Do(context.Background(), client.B().Ping().Build()).Error()) }))

			waits := locking(m[to])
			s.queued("ours", 1)
			cost.measure(s.wire, func() { ours = append(ours, handOver(m[from], waits)) })

			refused := make(chan struct{}, 1)
			r[to].(*recipe).refused = func() {
				select {
				case refused <- struct{}{}:
				default:
				}
			}
			waits = locking(r[to])
			<-refused
			recipes = append(recipes, handOver(r[from], waits))
		}
		m[b.N%2].Unlock()
		r[b.N%2].Unlock()

		trip := quantile(pings, 0.5)
		trips := func(d time.Duration) float64 { return float64(d) / float64(trip) }
		b.ReportMetric(float64(quantile(ours, 0.5)), "ns/op")
		b.ReportMetric(trips(quantile(ours, 0.5)), "p50-trips")
		b.ReportMetric(trips(quantile(ours, 0.99)), "p99-trips")
		b.ReportMetric(trips(quantile(recipes, 0.5)), "recipe-p50-trips")
		b.ReportMetric(trips(quantile(recipes, 0.99)), "recipe-p99-trips")
		b.ReportMetric(trips(quantile(pings, 0.99)), "ping-p99-trips")
		b.ReportMetric(float64(cost.cmds)/float64(cost.counted), "cmds/op")
	})
}

func since(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// locking locks l in the background, and tells when that was done.
func locking(l sync.Locker) <-chan time.Time {
	done := make(chan time.Time, 1)
	go func() {
		l.Lock()
		done <- time.Now()
	}()
	return done
}

// handOver unlocks l and tells how long after the call the one that waits had it. It returns when both
// are done.
func handOver(l sync.Locker, waits <-chan time.Time) time.Duration {
	start := time.Now()
	l.Unlock()
	return (<-waits).Sub(start)
}

// BenchmarkRelease: what it costs, with n Clients waiting, until the next one has the lock.
func BenchmarkRelease(b *testing.B) {
	const waiting = 200
	b.Run("waiting="+strconv.Itoa(waiting), func(b *testing.B) {
		s := newSituation(b, testserver.Start(b, testserver.Valkey))
		client := s.dial()
		recipes := make([]sync.Locker, waiting+1)
		for i := range recipes {
			recipes[i] = newRecipe(client, "recipe")
		}
		row := newRow(s, waiting)
		var us, them cost
		for range b.N {
			us.measure(s.wire, row.next)

			// The recipe's: all try until one has it.
			recipes[0].Lock()
			got := make(chan int, waiting)
			var wg sync.WaitGroup
			before := s.wire.counts()["set"]
			for i, r := range recipes[1:] {
				wg.Go(func() {
					r.Lock()
					got <- i
					r.Unlock()
				})
			}
			s.wire.await("set", before+waiting) // all have been refused, or will be
			them.measure(s.wire, func() {
				recipes[0].Unlock()
				<-got
			})
			wg.Wait()
		}
		us.report(b, "")
		them.report(b, "recipe-")
		row.end()
	})
}

// BenchmarkReadersBehindWriter: a writer leaves, and all the readers that wait come in. The recipe's
// readers look for themselves whether the writer has gone.
func BenchmarkReadersBehindWriter(b *testing.B) {
	const readers = 20
	b.Run("readers="+strconv.Itoa(readers), func(b *testing.B) {
		s := newSituation(b, testserver.Start(b, testserver.Valkey))
		client := s.dial()
		lot := newReaders(s, readers)
		var us, them cost
		for range b.N {
			lot.gather()
			us.measure(s.wire, lot.letIn)
			lot.leave()

			writer := newRecipe(client, "recipe")
			writer.Lock()
			before := s.wire.counts()["exists"]
			var wg sync.WaitGroup
			for range readers {
				wg.Go(func() {
					for {
						n, err := client.Do(context.Background(), client.B().Exists().Key("recipe").Build()).AsInt64()
						if err != nil {
							panic(err)
						}
						if n == 0 {
							return
						}
						time.Sleep(recipePause)
					}
				})
			}
			s.wire.await("exists", before+readers)
			them.measure(s.wire, func() {
				writer.Unlock()
				wg.Wait()
			})
		}
		us.report(b, "")
		them.report(b, "recipe-")
	})
}

// BenchmarkIdle: one holds, a hundred Clients wait, nothing happens. cmds/s is all that they send: the
// holder's renewals, the looks of the one at the front, the rare ones of those behind. An operation is the
// whole watch of 10 s. (valkey-go's own PINGs would come on top: testserver.Client switches them off.)
func BenchmarkIdle(b *testing.B) {
	const waiting = 100
	watch, pollers := 10*time.Second, time.Second
	if smoke() {
		watch, pollers = 200*time.Millisecond, 50*time.Millisecond
	}
	b.Run("waiting="+strconv.Itoa(waiting), func(b *testing.B) {
		s := newSituation(b, testserver.Start(b, testserver.Valkey, notifying...))
		row := newRow(s, waiting)
		client := s.dial()
		b.ResetTimer()
		var us, them float64
		for range b.N {
			before := s.wire.total()
			time.Sleep(watch)
			us += float64(s.wire.total()-before) / watch.Seconds()

			holder := newRecipe(client, "recipe")
			holder.Lock()
			lockers := make([]sync.Locker, waiting)
			for i := range lockers {
				lockers[i] = newRecipe(client, "recipe")
			}
			tried := s.wire.counts()["set"] + waiting
			done := make(chan struct{})
			go func() {
				defer close(done)
				contend(lockers, waiting)
			}()
			s.wire.await("set", tried)
			before = s.wire.total()
			time.Sleep(pollers)
			them += float64(s.wire.total()-before) / pollers.Seconds()
			holder.Unlock()
			<-done
		}
		b.ReportMetric(us/float64(b.N), "cmds/s")
		b.ReportMetric(them/float64(b.N), "recipe-cmds/s")
		row.end()
	})
}

// BenchmarkScriptTime: how long the server works, by its own clock, for one acquisition and its release;
// the median of turns of a hundred. ratio is against the recipe's SET and script.
func BenchmarkScriptTime(b *testing.B) {
	s := newSituation(b, testserver.Start(b, testserver.Valkey))
	client := s.dial()
	c := newQuietClient(b, client)
	for _, p := range uncontended {
		b.Run("primitive="+p.name, func(b *testing.B) {
			// Acquisitions and releases are counted as one command by the server: one kind at a time.
			const most = 100
			var ours, recipes [most]sync.Locker
			for i := range most {
				key := b.Name() + strconv.Itoa(i)
				ours[i], recipes[i] = p.make(c, i, key), newRecipe(client, key+"/recipe")
			}
			times(ours[0])(1)
			times(recipes[0])(1)
			var acquire, release, set, unlock usec
			for done := 0; done < b.N; done += most {
				n := min(most, b.N-done)
				acquire.add(s.server, "evalsha", func() { each(ours[:n], sync.Locker.Lock) })
				release.add(s.server, "evalsha", func() { each(ours[:n], sync.Locker.Unlock) })
				set.add(s.server, "set", func() { each(recipes[:n], sync.Locker.Lock) })
				unlock.add(s.server, "evalsha", func() { each(recipes[:n], sync.Locker.Unlock) })
			}
			b.ReportMetric(acquire.median(), "acquire-usec")
			b.ReportMetric(release.median(), "release-usec")
			b.ReportMetric(set.median(), "recipe-set-usec")
			b.ReportMetric(unlock.median(), "recipe-unlock-usec")
			b.ReportMetric((acquire.median()+release.median())/(set.median()+unlock.median()), "ratio")
		})
	}
}

func each(lockers []sync.Locker, f func(sync.Locker)) {
	for _, l := range lockers {
		f(l)
	}
}

// usec is the times that a server worked for one call of a command, by its own count; one for each turn.
type usec []float64

func (u *usec) add(s *testserver.Server, command string, f func()) {
	calls, spent := commandTime(s, command)
	f()
	c, t := commandTime(s, command)
	*u = append(*u, (t-spent)/(c-calls))
}

func (u usec) median() float64 {
	slices.Sort(u)
	return u[len(u)/2]
}

// commandTime reads a line like cmdstat_set:calls=3,usec=12,….
func commandTime(s *testserver.Server, command string) (calls, spent float64) {
	reply, err := s.Do("INFO", "commandstats")
	if err != nil {
		panic(err)
	}
	text, err := reply.ToString()
	if err != nil {
		panic(err)
	}
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_"+command+":"); ok {
			if _, err := fmt.Sscanf(rest, "calls=%f,usec=%f,", &calls, &spent); err != nil {
				panic(fmt.Sprintf("%q: %v", line, err))
			}
		}
	}
	return calls, spent
}
