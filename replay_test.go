package valkeysync

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/protocol"
	"github.com/valkeysync/valkeysync/model"
)

// The link from the model to the code. Random schedules of requests run against the scripts and against the
// model's server, step by step: what both answer, keep and tell must be the same.

var (
	replays    = flag.Int("replays", 120, "how many random schedules the scripts and the model run side by side")
	replaySeed = flag.Uint64("replayseed", 0, "the first seed")
)

// A tick of the model is a second here. A lease of n ticks is half a second shorter, so that it ends between
// two ticks and both agree on whether it is over.
const replayTick = time.Second

func ticks(n int8) time.Duration { return time.Duration(n)*replayTick - replayTick/2 }

func fromTicks(left time.Duration) int {
	if left < 0 {
		return -1
	}
	return int((left + replayTick/2) / replayTick)
}

func replayConfigs() []model.Config {
	base := model.Config{Clients: 3, Lease: 4, First: 2, Grace: 2, Latest: 1}
	with := func(kind model.Kind, size int8, weight ...int8) model.Config {
		c := base
		c.Kind, c.Size = kind, size
		copy(c.Weight[:], weight)
		return c
	}
	mixed := with(model.Mutex, 1, 1, 1, 1)
	mixed.Mixed = true
	return []model.Config{
		with(model.Mutex, 1, 1, 1, 1),
		mixed,
		with(model.RWMutex, 7, 7, 1, 1),
		with(model.RWMutex, 7, 7, 7, 1),
		with(model.Semaphore, 2, 1, 1, 2),
		with(model.Semaphore, 3, 1, 2, 2),
	}
}

func TestScriptsAndModelAgreeStepByStep(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		peers := []*peer{b.peer("A", "-"), b.peer("B", "-"), b.peer("C", "-")}
		configs := replayConfigs()
		for i := range *replays {
			seed := *replaySeed + uint64(i)
			r := newReplay(t, b, peers, configs[seed%uint64(len(configs))], seed)
			for range 25 {
				r.step()
				if t.Failed() {
					t.Logf("seed %d, %v:\n%v", seed, r.c.Kind, r.log)
					return
				}
			}
			r.end()
		}
	})
}

// replay is one schedule, on a key of its own.
type replay struct {
	t     *testing.T
	b     *bubble
	c     model.Config
	rnd   *rand.Rand
	lone  *model.Lone
	peers []*peer
	on    [3]bool // subscribed
	holds map[int]replayHold
	known []int // numbers in holds, for choosing
	log   []string
}

// replayHold is a hold that was there once, as both sides know it.
type replayHold struct {
	client, attempt int
	value           string
}

func newReplay(t *testing.T, b *bubble, peers []*peer, c model.Config, seed uint64) *replay {
	keys, err := protocol.KeysFor("", fmt.Sprint("replay", seed))
	require.NoError(t, err)
	for _, p := range peers {
		p.keys = keys
	}
	return &replay{
		t: t, b: b, c: c, rnd: rand.New(rand.NewPCG(seed, 7)), lone: model.NewLone(c), peers: peers,
		on: [3]bool{true, true, true}, holds: map[int]replayHold{},
	}
}

func (r *replay) entry(client, attempt int) protocol.Entry {
	e := protocol.Entry{
		Client: r.peers[client].id, Attempt: fmt.Sprint(attempt), Weight: 1, Kind: protocol.MutexKind, Mode: protocol.Exclusive,
		Lease: ticks(r.c.Lease), First: ticks(r.c.First), Grace: ticks(r.c.Grace), Name: "replay",
	}
	if r.c.Mixed && client == 0 {
		e.Grace = 0
	}
	switch r.c.Kind {
	case model.RWMutex:
		e.Kind = protocol.RWMutexKind
		if r.c.Weight[client] < r.c.Size {
			e.Mode = protocol.Reader
		}
	case model.Semaphore:
		e.Kind, e.Mode, e.Weight = protocol.SemaphoreKind(int64(r.c.Size)), protocol.Permit, int64(r.c.Weight[client])
	}
	return e
}

// step does one thing on both sides and compares.
func (r *replay) step() {
	client, attempt := r.rnd.IntN(3), 1+r.rnd.IntN(2)
	p, e := r.peers[client], r.entry(client, attempt)
	ctx := r.t.Context()
	age := r.rnd.IntN(3)
	latest := time.Now().UnixMilli() + int64(int(r.c.Latest)-age)*replayTick.Milliseconds()
	var want model.Answer
	var got protocol.Reply
	var err error
	switch n := r.rnd.IntN(100); {
	case n < 20:
		r.say("a tick passes")
		time.Sleep(replayTick)
		r.lone.Tick()
		r.compare()
		return
	case n < 45:
		try := r.rnd.IntN(5) == 0
		r.say("%s acquires #%d, try %v, sent %d ago", p.id, attempt, try, age)
		want = r.lone.Acquire(client, attempt, try, age)
		got, err = p.Acquire(ctx, &p.keys, e, try, latest)
	case n < 65 && len(r.known) > 0:
		number := r.known[r.rnd.IntN(len(r.known))]
		if r.rnd.IntN(2) == 0 {
			number = r.known[len(r.known)-1]
		}
		h := r.holds[number]
		if r.rnd.IntN(4) == 0 {
			r.say("%s renews #%d", r.peers[h.client].id, h.attempt)
			want = r.lone.Renew(h.client, h.attempt, number)
			got, err = p.Renew(ctx, &p.keys, h.value, ticks(r.c.Lease), false)
			break
		}
		next := r.rnd.IntN(3)
		var again *protocol.Entry
		if next == h.attempt {
			next = 0
		}
		if next != 0 {
			e := r.entry(h.client, next)
			again = &e
		}
		r.say("%s releases #%d, then #%d, sent %d ago", r.peers[h.client].id, h.attempt, next, age)
		want = r.lone.Release(h.client, h.attempt, number, next, age)
		proof := h.value
		if r.rnd.IntN(2) == 0 {
			held := protocol.ParseHolder(h.value)
			proof = held.Proof(held.Number, held.Since)
		}
		got, err = p.Release(ctx, &p.keys, proof, again, protocol.Queue, latest)
	case n < 75:
		r.say("%s leaves #%d", p.id, attempt)
		want = r.lone.Leave(client, attempt)
		entry := e.String()
		if r.rnd.IntN(2) == 0 {
			entry = ""
		}
		got, err = p.Leave(ctx, &p.keys, e.Ref(), entry, e.Kind, -1)
	case n < 90:
		r.say("%s checks #%d", p.id, attempt)
		want = r.lone.Check(client, attempt)
		heard := time.Hour
		if e.Grace == 0 {
			heard = -1
		}
		got, err = p.Check(ctx, &p.keys, e, false, heard)
	case n < 97:
		r.subscribe(client, !r.on[client])
		return
	default:
		r.foreign()
		return
	}
	require.NoError(r.t, err)
	require.Equal(r.t, want, r.answer(got), "%v %v", got, r.log)
	r.compare()
}

func (r *replay) say(format string, args ...any) {
	r.log = append(r.log, fmt.Sprintf(format, args...)+"\n")
}

// answer is a reply as the model would put it.
func (r *replay) answer(got protocol.Reply) model.Answer {
	a := model.Answer{Outcome: string(got.Outcome)}
	switch got.Outcome {
	case protocol.Queued:
		a.Place, a.Left, a.DeadFront = got.Place, fromTicks(got.Remaining), got.DeadFront
	case protocol.Held:
		a.Left = fromTicks(got.Remaining)
	}
	return a
}

func (r *replay) subscribe(client int, on bool) {
	p := r.peers[client]
	r.say("%s is subscribed: %v", p.id, on)
	cmd := p.ear.B().Unsubscribe().Channel(protocol.ChannelFor(p.id)).Build()
	if on {
		cmd = p.ear.B().Subscribe().Channel(protocol.ChannelFor(p.id)).Build()
	}
	require.NoError(r.t, p.ear.Do(r.t.Context(), cmd).Error())
	r.on[client] = on
	r.lone.Subscribe(client, on)
}

func (r *replay) foreign() {
	p := r.peers[0]
	set := r.rnd.IntN(2) == 0
	if !r.lone.Foreign(set) {
		return
	}
	r.say("a plain holder: %v", set)
	cmd := p.Client.B().Del().Key(p.keys.Lock).Build()
	if set {
		cmd = p.Client.B().Set().Key(p.keys.Lock).Value("somebody").Nx().Build()
	}
	require.NoError(r.t, p.Client.Do(r.t.Context(), cmd).Error())
	r.compare()
}

// compare compares what both servers keep, and what they told.
func (r *replay) compare() {
	r.t.Helper()
	synctest.Wait()
	st := r.standing()
	type kept struct {
		holder protocol.Holder
		left   int
	}
	var real []kept
	for _, m := range st.Shared {
		real = append(real, kept{protocol.ParseHolder(m.Value), fromTicks(time.Duration(m.Score-st.Now) * time.Millisecond)})
	}
	if h := protocol.ParseHolder(st.Value); st.Value != "" && !h.Shared && !h.Foreign {
		real = append(real, kept{h, fromTicks(st.Remaining)})
	}
	slices.SortFunc(real, func(a, b kept) int { return int(a.holder.Number - b.holder.Number) })
	want := r.lone.Holds()
	r.say("   %v %v", want, r.lone.Queue())
	var got []model.Hold
	for i, k := range real {
		h := model.Hold{Client: r.client(k.holder.Client), Left: k.left}
		fmt.Sscan(k.holder.Attempt, &h.Attempt)
		if i < len(want) { // of numbers the order counts
			h.Number = want[i].Number
			if _, ok := r.holds[h.Number]; !ok {
				r.known = append(r.known, h.Number)
				r.holds[h.Number] = replayHold{h.Client, h.Attempt, k.holder.Value}
			}
			require.Equal(r.t, r.holds[h.Number].value, k.holder.Value, "%v", r.log)
		}
		got = append(got, h)
	}
	require.Equal(r.t, want, got, "%v", r.log)

	var queue []model.Place
	for _, m := range st.Queue {
		e, ok := protocol.ParseEntry(m.Value)
		require.True(r.t, ok)
		place := model.Place{Client: r.client(e.Client)}
		fmt.Sscan(e.Attempt, &place.Attempt)
		queue = append(queue, place)
	}
	require.Equal(r.t, r.lone.Queue(), queue, "%v", r.log)

	for i, p := range r.peers {
		var told []model.Told
		for _, m := range p.messages() {
			if m.Verb != protocol.Grant && m.Verb != protocol.Front {
				continue
			}
			x := model.Told{Verb: string(m.Verb), Client: i}
			fmt.Sscan(m.Attempt, &x.Attempt)
			for _, k := range real {
				if m.Verb == protocol.Grant && k.holder.Number == m.Number {
					x.Number = want[slices.Index(real, k)].Number
				}
			}
			told = append(told, x)
		}
		require.Equal(r.t, r.lone.Heard(i), told, "%v", r.log)
	}
}

// standing is Status without its script, for speed.
func (r *replay) standing() protocol.Standing {
	p := r.peers[0]
	b := p.Client.B
	base := "{" + p.keys.Lock + "}"
	got := p.Client.DoMulti(r.t.Context(),
		b().Get().Key(p.keys.Lock).Build(), b().Pttl().Key(p.keys.Lock).Build(),
		b().Zrange().Key(base+":shared").Min("0").Max("-1").Withscores().Build(),
		b().Zrange().Key(base+":queue").Min("0").Max("-1").Build(),
	)
	st := protocol.Standing{Now: time.Now().UnixMilli()}
	st.Value, _ = got[0].ToString()
	left, err := got[1].AsInt64()
	require.NoError(r.t, err)
	st.Remaining = time.Duration(left) * time.Millisecond
	shared, err := got[2].AsZScores()
	require.NoError(r.t, err)
	for _, m := range shared {
		if int64(m.Score) >= st.Now { // others lapse with the next script
			st.Shared = append(st.Shared, protocol.Member{Value: m.Member, Score: int64(m.Score)})
		}
	}
	queue, err := got[3].AsStrSlice()
	require.NoError(r.t, err)
	for _, value := range queue {
		st.Queue = append(st.Queue, protocol.Member{Value: value})
	}
	return st
}

func (r *replay) client(id string) int {
	return slices.IndexFunc(r.peers, func(p *peer) bool { return p.id == id })
}

// end leaves the peers as the next schedule wants them.
func (r *replay) end() {
	for i, on := range r.on {
		if !on {
			r.subscribe(i, true)
		}
	}
}
