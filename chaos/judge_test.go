package chaos

import (
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// The judge is judged: histories made by hand, in ms, each with one thing wrong.

const unit = int64(time.Millisecond)

// hold is an operation that was called at call, held from from to sure, and gave back by end.
func hold(who string, key string, token, call, from, sure, end int64) *op {
	return &op{
		who: who, id: token, key: key, mode: Exclusive, weight: 1, token: token << 10,
		call: call * unit, ret: from * unit, from: from * unit, sure: sure * unit, unlock: sure * unit, end: end * unit, out: outReleased,
	}
}

func (o *op) as(mode Mode, weight int64) *op {
	o.mode, o.weight = mode, weight
	return o
}

// of is o for an owner.
func (o *op) of(owner string) *op {
	o.mode, o.owner = Reader, owner
	return o
}

// by is o called in that form.
func (o *op) by(f form) *op {
	o.form = f
	return o
}

// takenBack: another's unlock had ended it.
func (o *op) takenBack() *op {
	o.taken = true
	return o
}

// lapsed: it was never given back; that it was certain is known up to sure.
func (o *op) lapsed() *op {
	o.unlock, o.end, o.out = 0, 0, ""
	return o
}

func downgraded(o *op, writer int64) *op {
	o.after = writer << 10
	return o
}

func (o *op) failed(err string) *op {
	o.token, o.from, o.sure, o.unlock, o.end, o.out, o.err = 0, 0, 0, 0, 0, "", err
	return o
}

var testKeys = []Key{{Name: "m", Kind: "mutex"}, {Name: "rw", Kind: "rwmutex"}, {Name: "sem", Kind: "semaphore", Size: 3}}

func verdict(freed []freed, queue bool, ops ...*op) *Result {
	p := Plan{
		Keys: testKeys, Workers: 2, Queue: queue, Schedule: []Fault{{Kind: NetCut}},
		Leases: []time.Duration{time.Second}, Graces: []time.Duration{0},
	}
	res := &Result{Plan: p}
	(&trial{plan: p, ops: ops, freed: freed, res: res}).judge()
	return res
}

func TestJudgeAcceptsWhatIsRight(t *testing.T) {
	for name, ops := range map[string][]*op{
		"one after the other":             {hold("w0.0", "m", 1, 0, 1, 5, 6), hold("w1.0", "m", 2, 2, 6, 8, 9)},
		"given while the unlock returns":  {hold("w0.0", "m", 1, 0, 1, 5, 9), hold("w1.0", "m", 2, 2, 6, 8, 10)},
		"after a lapse":                   {hold("w0.0", "m", 1, 0, 1, 5, 0).lapsed(), hold("w1.0", "m", 2, 2, 6, 8, 9)},
		"readers together":                {hold("w0.0", "rw", 1, 0, 1, 5, 6).as(Reader, 1), hold("w1.0", "rw", 2, 0, 2, 8, 9).as(Reader, 1), hold("w1.0", "rw", 3, 0, 9, 10, 11)},
		"permits together":                {hold("w0.0", "sem", 1, 0, 1, 5, 6).as(Permit, 2), hold("w1.0", "sem", 2, 0, 2, 8, 9).as(Permit, 1), hold("w1.0", "sem", 3, 3, 6, 8, 9).as(Permit, 2)},
		"a failed call may have had it":   {hold("w0.0", "m", 1, 0, 3, 0, 0).failed("context"), hold("w1.0", "m", 2, 5, 6, 0, 0).failed("locked"), hold("w1.0", "m", 3, 7, 8, 9, 10)},
		"a killed worker's call":          {hold("w0.0", "m", 1, 0, 0, 0, 0).failed(""), hold("w1.0", "m", 3, 7, 8, 9, 10)},
		"an owner's together":             {hold("w0.0", "m", 1, 0, 1, 8, 9).of("a"), hold("w1.0", "m", 2, 0, 2, 5, 6).of("a"), hold("w1.0", "m", 3, 3, 8, 10, 11).of("b"), hold("w0.0", "m", 4, 3, 10, 12, 13)},
		"an owner's, joined by a lower":   {hold("w0.0", "m", 1, 0, 1, 8, 9).of("a"), hold("w1.0", "m", 5, 0, 2, 5, 6).of("a"), hold("w0.0", "m", 2, 6, 7, 8, 9).of("a")},
		"busy while another is at it too": {hold("w0.0", "m", 1, 0, 1, 5, 6), hold("w1.0", "m", 2, 2, 3, 0, 0).failed("locked")},
	} {
		res := verdict(nil, false, ops...)
		require.Empty(t, res.Violations, name)
		require.Zero(t, res.Undecided, name)
	}
}

func TestJudgeFindsWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		says string
		ops  []*op
	}{
		"two holders":           {"two at once", []*op{hold("w0.0", "m", 1, 0, 1, 5, 6), hold("w1.0", "m", 2, 0, 4, 8, 9)}},
		"order of tokens":       {"two at once, or out of order", []*op{hold("w0.0", "m", 2, 0, 1, 5, 6), hold("w1.0", "m", 1, 0, 7, 8, 9)}},
		"later call, lower":     {"the later call has the lower token", []*op{hold("w0.0", "sem", 2, 0, 1, 5, 6).as(Permit, 2), hold("w1.0", "sem", 1, 7, 8, 9, 10).as(Permit, 2)}},
		"one token twice":       {"one token twice", []*op{hold("w0.0", "m", 1, 0, 1, 5, 6), hold("w1.0", "m", 1, 7, 8, 9, 10)}},
		"reader beside writer":  {"two at once", []*op{hold("w0.0", "rw", 1, 0, 1, 5, 6).as(Reader, 1), hold("w1.0", "rw", 2, 0, 4, 8, 9)}},
		"writer beside readers": {"two at once", []*op{hold("w0.0", "rw", 1, 0, 1, 5, 6), hold("w1.0", "rw", 2, 0, 4, 8, 9).as(Reader, 1)}},
		"too many permits":      {"4 of 3 permits", []*op{hold("w0.0", "sem", 1, 0, 1, 5, 6).as(Permit, 2), hold("w1.0", "sem", 2, 0, 2, 8, 9).as(Permit, 2)}},
		"before a lapse":        {"two at once", []*op{hold("w0.0", "m", 1, 0, 1, 5, 0).lapsed(), hold("w1.0", "m", 2, 0, 4, 8, 9)}},
		"writer in a downgrade": {"between the two sides", []*op{hold("w0.0", "rw", 1, 0, 1, 5, 6), hold("w1.0", "rw", 2, 0, 6, 7, 8), downgraded(hold("w0.0", "rw", 3, 5, 9, 10, 11).as(Reader, 1), 1)}},
		"unheld for long":       {"unheld for", []*op{hold("w0.0", "m", 1, 0, 1, 5, 6), hold("w1.0", "m", 2, 2, 20000, 20001, 20002)}},
		"two owners":            {"two at once", []*op{hold("w0.0", "m", 1, 0, 1, 5, 6).of("a"), hold("w1.0", "m", 2, 0, 4, 8, 9).of("b")}},
		"owner beside a holder": {"two at once", []*op{hold("w0.0", "m", 1, 0, 1, 5, 6), hold("w1.0", "m", 2, 0, 4, 8, 9).of("b")}},
		"holder beside owner":   {"two at once", []*op{hold("w0.0", "m", 1, 0, 1, 5, 6).of("a"), hold("w0.0", "m", 2, 0, 1, 3, 4).of("a"), hold("w1.0", "m", 3, 0, 4, 8, 9)}},
		"tokens of owners":      {"two at once, or out of order", []*op{hold("w0.0", "m", 2, 0, 1, 5, 6).of("a"), hold("w1.0", "m", 1, 7, 8, 9, 10).of("b")}},
		"one of several":        {"two at once", []*op{hold("w0.0", "m", 1, 0, 1, 5, 6).by(several), hold("w1.0", "m", 2, 0, 4, 8, 9).by(plain)}},
		"unheld after LockAll":  {"unheld for", []*op{hold("w0.0", "m", 1, 0, 1, 5, 6).by(several), hold("w1.0", "m", 2, 2, 20000, 20001, 20002).by(plain)}},
		"another's unlock":      {"given back by the unlock of another", []*op{hold("w0.0", "m", 1, 0, 1, 5, 6).by(plain).takenBack()}},
		"refused while certain": {"the store had seen a higher token", []*op{{who: "w0.0", key: "m", mode: Exclusive, weight: 1, token: 1 << 10, call: 1, ret: 2, from: 2, sure: 9, refused: 8, unlock: 9, end: 10, out: outReleased}}},
	} {
		res := verdict(nil, false, c.ops...)
		require.Contains(t, strings.Join(res.Violations, "\n"), c.says, name)
	}
}

// Who waits for several locks holds some of them meanwhile, nobody knows which.
func TestJudgeOfWaitsForSeveralLocks(t *testing.T) {
	unheld := func(f form) []string {
		p := Plan{Keys: testKeys, Workers: 2, Schedule: []Fault{{Kind: NetCut}}, Leases: []time.Duration{time.Second}, Graces: []time.Duration{0}}
		c := &trial{plan: p, res: &Result{Plan: p}, stopped: 9000 * unit, ops: []*op{
			hold("w0.0", "m", 1, 0, 9000, 9001, 9002).by(f), hold("w1.0", "m", 2, 2, 9003, 9004, 9005),
		}}
		c.judge()
		return c.res.Violations
	}
	require.Empty(t, unheld(several))
	require.Len(t, unheld(plain), 2, "each waits, and nobody holds")
}

func TestJudgeOfOrder(t *testing.T) {
	res := verdict(nil, true,
		hold("w0.0", "m", 1, 0, 1, 1000, 1001), hold("w1.0", "m", 3, 1, 1500, 1501, 1502), hold("w0.0", "m", 2, 700, 1200, 1201, 1202))
	require.Len(t, res.Violations, 1)
	require.Contains(t, res.Violations[0], "served first")
	require.Equal(t, 1, res.Ordered)
}

// What may take a lock from its holder excuses two at once, for as long as the holder's lease and for
// nobody else.
func TestJudgeExcusesWhatWasTakenAway(t *testing.T) {
	taken := []freed{{from: 10 * unit, to: 11 * unit, since: 100, until: 100, key: "m", what: DeleteKey}}
	first := func(sure int64) *op { return hold("w0.0", "m", 50, 0, 1, sure, sure+1) }
	second := hold("w1.0", "m", 200, 0, 12, 900, 901)

	res := verdict(taken, false, first(500), second)
	require.Empty(t, res.Violations)
	require.Equal(t, 1, res.Excused)

	require.NotEmpty(t, verdict(taken, false, first(1100), second).Violations, "longer than its lease")
	require.NotEmpty(t, verdict(taken, false, first(500), second, hold("w0.0", "m", 300, 13, 800, 901, 902)).Violations, "granted after it")
	require.NotEmpty(t, verdict(taken, false, first(500), hold("w1.0", "m", 200, 0, 9, 900, 901)).Violations, "before it")
	// The number of the robbed hold is handed on inside its process until that is told.
	require.Empty(t, verdict(taken, false, hold("w1.0", "m", 200, 0, 12, 13, 14), hold("w0.0", "m", 60, 15, 16, 17, 18)).Violations)
	require.NotEmpty(t, verdict(nil, false, hold("w1.0", "m", 200, 0, 12, 13, 14), hold("w0.0", "m", 60, 15, 16, 17, 18)).Violations)
	late := func() *op { // lost when the call returned
		o := hold("w0.0", "m", 60, 15, 16, 17, 18)
		o.from, o.sure, o.out = 0, 0, outLost
		return o
	}
	require.Empty(t, verdict(taken, false, hold("w1.0", "m", 200, 0, 12, 13, 14), late()).Violations)
	require.NotEmpty(t, verdict(nil, false, hold("w1.0", "m", 200, 0, 12, 13, 14), late()).Violations)
	shared := func(from, sure int64, n int64) *op { return hold("w0.0", "m", n, 0, from, sure, sure+1).as(Reader, 1) }
	require.NotEmpty(t, verdict(taken, false, shared(1, 500, 50), second).Violations, "a reader keeps its hold without the marker")
	stopped := first(5) // it was stopped before it was robbed, and killed after the store had refused it
	stopped.refused = 600 * unit
	require.Empty(t, verdict(taken, false, stopped, second).Violations)
	require.NotEmpty(t, verdict(nil, false, stopped, second).Violations)
	owned := func(sure int64) *op { return first(sure).of("a") }
	require.NotEmpty(t, verdict(taken, false, owned(500), second).Violations, "an owner keeps its hold without the marker")
	require.Empty(t, verdict(taken, false, owned(5000)).Violations)
	require.NotEmpty(t, verdict(nil, false, owned(500), second).Violations)
	require.Empty(t, verdict(taken, false, first(5).by(plain).takenBack()).Violations)
	taken[0].key = "rw"
	require.NotEmpty(t, verdict(taken, false, first(500), second).Violations, "another key")
}

// The checker of histories finds by itself what the judge finds directly.
func TestHistoriesOfTheModels(t *testing.T) {
	check := func(k Key, ops ...*op) porcupine.CheckResult {
		c := &trial{plan: Plan{Keys: testKeys, Leases: []time.Duration{time.Second}, Graces: []time.Duration{0}, Workers: 1}, ops: ops, res: &Result{}}
		return porcupine.CheckOperationsTimeout(model(k, false), c.steps(ops), time.Minute)
	}
	m, rw, sem := testKeys[0], testKeys[1], testKeys[2]
	require.Equal(t, porcupine.Illegal, check(m, hold("w0.0", "m", 1, 0, 1, 5, 6), hold("w1.0", "m", 2, 0, 4, 8, 9)))
	require.Equal(t, porcupine.Illegal, check(m, hold("w0.0", "m", 2, 0, 1, 5, 6), hold("w1.0", "m", 1, 7, 8, 9, 10)))
	require.Equal(t, porcupine.Illegal, check(rw, hold("w0.0", "rw", 1, 0, 1, 5, 6).as(Reader, 1), hold("w1.0", "rw", 2, 0, 4, 8, 9)))
	require.Equal(t, porcupine.Illegal, check(rw, hold("w0.0", "rw", 1, 0, 1, 5, 6), hold("w1.0", "rw", 2, 0, 4, 8, 9).as(Reader, 1)))
	require.Equal(t, porcupine.Illegal, check(m, hold("w0.0", "m", 1, 0, 1, 5, 6).of("a"), hold("w1.0", "m", 2, 0, 4, 8, 9).of("b")))
	require.Equal(t, porcupine.Illegal, check(m, hold("w0.0", "m", 2, 0, 1, 5, 6).of("a"), hold("w1.0", "m", 1, 7, 8, 9, 10).of("b")))
	require.Equal(t, porcupine.Ok, check(m, hold("w0.0", "m", 2, 0, 1, 5, 6).of("a"), hold("w1.0", "m", 1, 0, 4, 9, 10).of("a")))
	require.Equal(t, porcupine.Illegal, check(sem, hold("w0.0", "sem", 1, 0, 1, 5, 6).as(Permit, 2), hold("w1.0", "sem", 2, 0, 2, 8, 9).as(Permit, 2)))
	require.Equal(t, porcupine.Illegal, check(m, hold("w0.0", "m", 1, 0, 1, 5, 6), hold("w1.0", "m", 2, 60000, 60001, 0, 0).failed("locked")), "busy, and nobody there")
	require.Equal(t, porcupine.Ok, check(m, hold("w0.0", "m", 1, 0, 1, 0, 0).failed("context"), hold("w1.0", "m", 2, 5, 6, 0, 0).failed("locked")), "the failed one may have it")
	require.Equal(t, porcupine.Illegal, check(m, hold("w0.0", "m", 1, 0, 1, 5, 0).lapsed(), hold("w1.0", "m", 2, 0, 4, 8, 9)))
}

func TestOneSeedMakesOnePlan(t *testing.T) {
	require.Equal(t, PlanFor(7, time.Second).String(), PlanFor(7, time.Second).String())
	require.NotEqual(t, PlanFor(7, time.Second).String(), PlanFor(9, time.Second).String())
	kindsSeen, queue := map[Kind]bool{}, false
	for seed := range uint64(200) {
		p := PlanFor(seed, 10*time.Second)
		queue = queue || p.Queue
		for _, f := range p.Schedule {
			kindsSeen[f.Kind] = true
		}
	}
	require.Len(t, kindsSeen, len(kinds), "every kind of fault comes up")
	require.True(t, queue)
}
