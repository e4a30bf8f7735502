package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Result is what became of a world.
type Result struct {
	Plan       Plan
	Took       time.Duration
	Violations []string

	Acquired  int            // operations that returned with the lock
	Forms     map[form]int   // the same, by how they were called
	Failed    map[string]int // and that did not, by why
	Lost      map[string]int // holds whose lease was lost, by cause
	Killed    int            // operations under way in workers that were killed
	Refused   int            // writes that the store refused: the holder had lost its lease
	Excused   int            // holds that something took away that may do so, and which overlapped with another
	Ordered   int            // pairs whose order was judged
	Longest   time.Duration  // that a lock stayed unheld after the last fault while somebody waited for it
	Waiter    string         // for it
	Heap      uint64         // largest of a worker at the end
	Histories int            // operations that the checker of histories took
	Undecided int            // histories that the checker did not finish in its time
}

func (r *Result) violate(format string, args ...any) {
	const most = 20
	if len(r.Violations) < most {
		r.Violations = append(r.Violations, fmt.Sprintf(format, args...))
	}
}

// String is a line for people.
func (r *Result) String() string {
	return fmt.Sprintf("seed %d: %d acquired, failed %v, lost %v, killed under way %d, refused %d, excused %d, ordered %d, longest unheld after the last fault %v, heap %d KiB, histories %d (%d undecided), %d faults, %v: %d violations",
		r.Plan.Seed, r.Acquired, r.Failed, r.Lost, r.Killed, r.Refused, r.Excused, r.Ordered, r.Longest.Round(time.Millisecond), r.Heap>>10, r.Histories, r.Undecided, len(r.Plan.Schedule), r.Took.Round(time.Millisecond), len(r.Violations))
}

// judge looks at all that happened.
func (w *World) judge(res *Result) {
	r := w.record
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, text := range r.wrong {
		res.violate("%s", text)
	}
	res.Refused = r.refused
	for who, e := range r.idle {
		if e.Goroutines > 0 {
			res.violate("%s: %d goroutines of the library go on with nothing to do", who, e.Goroutines)
		}
	}
	for who, e := range r.closed {
		if e.Goroutines > 0 {
			res.violate("%s: %d goroutines are left after Close", who, e.Goroutines)
		}
		res.Heap = max(res.Heap, e.Heap)
	}
	const heapLimit = 32 << 20
	if res.Heap > heapLimit {
		res.violate("a worker ends with a heap of %d MiB", res.Heap>>20)
	}
	c := &trial{plan: w.plan, ops: r.ops, freed: r.freed, lastFault: w.lastFault, stopped: w.stopped, res: res}
	c.judge()
}

// trial is what the judge has before him. It needs no world, so that the judge can be judged.
type trial struct {
	plan      Plan
	ops       []*op
	freed     []freed
	lastFault int64
	stopped   int64
	res       *Result
}

func (c *trial) judge() {
	c.count()
	for _, k := range c.plan.Keys {
		var ops []*op
		for _, o := range c.ops {
			if o.key == k.Name {
				ops = append(ops, o)
			}
		}
		c.waits(ops)
		c.told(ops)
		c.rising(k, ops)
		if k.Kind == "semaphore" {
			c.crowding(k, ops)
		} else {
			c.exclusion(ops)
		}
		if c.plan.Queue {
			c.order(ops)
		}
		c.history(k, ops)
	}
}

func (c *trial) count() {
	c.res.Failed, c.res.Lost, c.res.Forms = map[string]int{}, map[string]int{}, map[form]int{}
	for _, o := range c.ops {
		switch {
		case o.token != 0:
			c.res.Acquired++
			c.res.Forms[o.form]++
		case o.ret == 0:
			c.res.Killed++
		case o.err == "context" || o.err == "locked":
			c.res.Failed[o.err]++
		default:
			c.res.Failed[firstWords(o.err)]++
			if len(c.plan.Schedule) == 0 {
				c.res.violate("nothing failed, and yet: %v", o)
			}
		}
		if o.out == outLost {
			c.res.Lost[o.lost]++
			if len(c.plan.Schedule) == 0 || c.plan.Gentle {
				c.res.violate("nothing failed that a Client could not repair, and yet a lease was lost: %v", o)
			}
		}
	}
}

// firstWords is what of an error says what it is.
func firstWords(err string) string {
	for _, word := range []string{"NOPERM", "NOAUTH", "WRONGPASS", "OOM", "MISCONF", "WRONGTYPE", "closed"} {
		if strings.Contains(err, word) {
			return word
		}
	}
	return "other"
}

// waits: once nothing fails any more, no lock stays unheld for long while somebody waits for it, and once
// nothing new begins, everybody is served. (Those that never are, the world itself has seen.) A call for several
// locks may hold this one while it waits for the next, so it is no proof of a wait, and may be why others do.
func (c *trial) waits(ops []*op) {
	limit := c.plan.patience()
	for _, o := range ops {
		for _, span := range [][2]int64{{o.call, o.ret}, {o.unlock, o.end}} {
			if d := time.Duration(span[1] - max(span[0], c.lastFault, c.stopped)); d > limit {
				c.res.violate("done %v after the others were told to stop, limit %v: %v", d, limit, o)
			}
		}
	}
	begins := func(o *op) int64 {
		if o.form == several {
			return o.call
		}
		return o.from
	}
	held := slices.DeleteFunc(slices.Clone(ops), func(o *op) bool { return !o.held() && o.form != several })
	slices.SortFunc(held, func(a, b *op) int { return cmp.Compare(begins(a), begins(b)) })
	begin := c.lastFault
	if c.plan.Gentle {
		begin = 0
	}
	waits := slices.DeleteFunc(slices.Clone(ops), func(o *op) bool { return o.ret <= begin || o.form == several })
	slices.SortFunc(waits, func(a, b *op) int { return cmp.Compare(a.call, b.call) })
	for _, o := range waits {
		covered := max(o.call, begin)
		i, _ := slices.BinarySearchFunc(held, covered-int64(time.Minute), func(h *op, t int64) int { return cmp.Compare(begins(h), t) })
		longest := int64(0)
		for _, h := range held[i:] {
			if begins(h) >= o.ret {
				break
			}
			longest = max(longest, begins(h)-covered)
			covered = max(covered, h.sure, h.end)
			if h.form == several {
				covered = max(covered, h.ret)
			}
		}
		longest = max(longest, o.ret-covered)
		if d := time.Duration(longest); d > c.res.Longest {
			c.res.Longest, c.res.Waiter = d, o.String()
		}
		if d := time.Duration(longest); d > limit {
			c.res.violate("unheld for %v after the last fault, limit %v, while it waited: %v", d, limit, o)
		}
	}
}

// excuse is the earliest moment at which something took the hold of o from it that may do so. One that was never certain
// may have been handed on inside its process when it was lost: that counts until it was told.
func (c *trial) excuse(o *op) (from int64, excused bool) {
	last := max(o.sure, o.refused)
	if !o.held() {
		last = o.ret
	}
	for _, f := range c.freed {
		if f.takes(o) && last >= f.from && (!excused || f.from < from) {
			from, excused = f.from, true
		}
	}
	return from, excused
}

// until is up to when o's hold excludes others.
func (c *trial) until(o *op) int64 {
	if from, ok := c.excuse(o); ok {
		return min(o.sure, from)
	}
	return o.sure
}

// told: who was robbed learns of it when its lease ends at the latest, and the store refuses nobody who
// was not robbed.
func (c *trial) told(ops []*op) {
	for _, o := range ops {
		if !o.held() {
			continue
		}
		for _, f := range c.freed {
			if f.ends(o) && o.sure > f.to+int64(c.lease(o)) {
				c.res.violate("%s at %d to %d, and the holder was certain for longer than its lease after it: %v", f.what, f.from, f.to, o)
			}
		}
		if o.taken && !slices.ContainsFunc(c.freed, func(f freed) bool { return f.key == "" || f.key == o.key }) {
			c.res.violate("given back by the unlock of another, while it was held: %v", o)
		}
		if _, excused := c.excuse(o); o.refused != 0 && !excused {
			c.res.violate("the store had seen a higher token, and then the hold was still certain: %v", o)
		}
	}
}

func (c *trial) lease(o *op) time.Duration {
	var slot, life int
	if _, err := fmt.Sscanf(o.who, "w%d.%d", &slot, &life); err != nil {
		panic(err)
	}
	return c.plan.job(slot, life, "").Lease
}

// rising: no token comes twice, and who asked after another had returned that it excludes has the higher
// one. (Of those that may hold together the order says nothing: readers of one process share a hold and its
// number, and a permit may be handed over inside a process under the number that it has.)
func (c *trial) rising(k Key, ops []*op) {
	var got []*op
	seen := map[int64]*op{}
	for _, o := range ops {
		if o.token == 0 || o.mode == Reader {
			continue
		}
		if other := seen[o.token]; other != nil {
			c.res.violate("one token twice:\n\t%v\n\t%v", other, o)
		}
		seen[o.token] = o
		got = append(got, o)
	}
	byCall, byReturn := slices.Clone(got), got
	slices.SortFunc(byCall, func(a, b *op) int { return cmp.Compare(a.call, b.call) })
	slices.SortFunc(byReturn, func(a, b *op) int { return cmp.Compare(a.ret, b.ret) })
	highest := map[int64]*op{} // by weight
	for _, o := range byCall {
		for len(byReturn) > 0 && byReturn[0].ret < o.call {
			r := byReturn[0]
			if h := highest[r.weight]; h == nil || r.token > h.token {
				highest[r.weight] = r
			}
			byReturn = byReturn[1:]
		}
		if from, excused := c.excuse(o); excused && from <= o.ret {
			continue // its process did not know yet, and handed the hold on to another goroutine
		}
		for weight, h := range highest {
			if h.token >= o.token && (o.mode == Exclusive || weight+o.weight > k.Size) {
				c.res.violate("the later call has the lower token:\n\t%v\n\t%v", h, o)
			}
		}
	}
}

// exclusion: in the order of tokens, no hold begins before those end that it excludes. So both two holders
// at once and holds out of order are found.
func (c *trial) exclusion(ops []*op) {
	var holds []*op
	for _, o := range ops {
		if o.held() {
			holds = append(holds, o)
		}
	}
	slices.SortFunc(holds, func(a, b *op) int { return cmp.Compare(a.token, b.token) })
	last := map[string]*op{} // of those so far, by with: the one that ends last
	var newest *op           // the last writer
	longer := func(a, b *op) *op {
		if a == nil || c.until(b) > c.until(a) {
			return b
		}
		return a
	}
	for _, o := range holds {
		from, excused := c.excuse(o)
		if excused && from <= o.from {
			c.res.Excused++
			continue // granted before it was taken away, and told later: what it thinks excludes nobody
		}
		var against *op
		for _, h := range last {
			if o.excludes(h) {
				against = longer(against, h)
			}
		}
		if against != nil && o.from < c.until(against) {
			c.res.violate("two at once, or out of order:\n\t%v\n\t%v", against, o)
		}
		if excused && o.sure > from {
			c.res.Excused++
		}
		if _, excused := c.excuse(o); o.after != 0 && newest != nil && newest.token > o.after && !excused {
			c.res.violate("a writer between the two sides of a downgrade of %d:\n\t%v\n\t%v", o.after, newest, o)
		}
		last[o.with()] = longer(last[o.with()], o)
		if o.mode == Exclusive {
			newest = o
		}
	}
}

// crowding: the weights of those that hold at once add up to the size at most.
func (c *trial) crowding(k Key, ops []*op) {
	type change struct {
		at int64
		by int64
		o  *op
	}
	var changes []change
	for _, o := range ops {
		if until := c.until(o); o.held() && until > o.from {
			changes = append(changes, change{o.from, o.weight, o}, change{until, -o.weight, o})
		}
		if _, excused := c.excuse(o); excused && o.held() {
			c.res.Excused++
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by)) })
	var sum int64
	in := map[*op]bool{}
	for _, ch := range changes {
		sum += ch.by
		if ch.by < 0 {
			delete(in, ch.o)
			continue
		}
		in[ch.o] = true
		if sum > k.Size {
			var text strings.Builder
			for o := range in {
				text.WriteString("\n\t" + o.String())
			}
			c.res.violate("%d of %d permits at once:%s", sum, k.Size, text.String())
		}
	}
}

// fairness is how much later a call must come to be certainly behind in the queue, on a busy machine.
const fairness = 300 * time.Millisecond

// order: who asked clearly later has it later.
func (c *trial) order(ops []*op) {
	for _, a := range ops {
		for _, b := range ops {
			if a.token == 0 || b.token == 0 || a.call+int64(fairness) >= b.call || a.ret < b.call {
				continue
			}
			c.res.Ordered++
			if a.token > b.token {
				c.res.violate("the one that came %v later was served first:\n\t%v\n\t%v", time.Duration(b.call-a.call), a, b)
			}
		}
	}
}
