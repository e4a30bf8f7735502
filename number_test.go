package valkeysync

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/protocol"
	"github.com/valkeysync/valkeysync/internal/testserver"
)

// A number is the server's time, and higher than the last one whatever that was; the fence ends an hour after it, or up
// to 100 s sooner where its end was left alone.
func TestNumbersRiseOverAnyFence(t *testing.T) {
	t.Parallel()
	onBoth(t, nil, func(t *testing.T, s *testserver.Server) {
		c := on(t, s)
		const left = 1000 * time.Second // of the fence that stands there
		micros := func(d time.Duration) func(now int64) string {
			return func(now int64) string { return strconv.FormatInt(now+d.Microseconds(), 10) }
		}
		text := func(s string) func(int64) string { return func(int64) string { return s } }
		faces := map[string]func(key string) (number, since int64){
			"mutex": func(key string) (int64, int64) {
				lock(t, c.Mutex(key))
				h := protocol.ParseHolder(stringOf(t, s, "GET", key))
				return h.Number, h.Since
			},
			"reader": func(key string) (int64, int64) {
				_, err := c.RWMutex(key).RLockContext(t.Context())
				require.NoError(t, err)
				h := protocol.ParseHolder(must(ptr(command(t, s, "ZRANGE", "{"+key+"}:shared", "0", "0")).AsStrSlice())[0])
				return h.Number, h.Since
			},
		}
		for name, fence := range map[string]func(now int64) string{
			"none":                       text(""),
			"of a moment ago":            micros(-time.Millisecond),
			"of 200 s ago":               micros(-200 * time.Second),
			"ahead: the clock went back": micros(time.Hour),
			"of few digits":              text("9"),
			"no number":                  text("x"),
		} {
			for face, take := range faces {
				key := name + " " + face
				now := serverMicros(t, s)
				before := fence(now)
				if before != "" {
					command(t, s, "SET", "{"+key+"}:fence", before, "PX", fmt.Sprint(left.Milliseconds()))
				}
				number, since := take(key)
				last, _ := strconv.ParseInt(before, 10, 64)
				if last < now {
					require.InDelta(t, now, number, 60e6, key)
				} else {
					require.Equal(t, last+1, number, key)
				}
				require.InDelta(t, now/1000, since, 60e3, key)
				require.Equal(t, strconv.FormatInt(number, 10), stringOf(t, s, "GET", "{"+key+"}:fence"), key)

				ends := time.Duration(must(ptr(command(t, s, "PTTL", "{"+key+"}:fence")).AsInt64())) * time.Millisecond
				hour := time.Duration(number-serverMicros(t, s))*time.Microsecond + time.Hour
				if strings.HasPrefix(strconv.FormatInt(number, 10), before[:min(8, len(before))]) && len(before) == 16 {
					require.LessOrEqual(t, ends, left, key)
				} else {
					require.InDelta(t, hour, ends, float64(time.Minute), key)
				}
			}
		}
	})
}

func stringOf(t *testing.T, s *testserver.Server, args ...string) string {
	t.Helper()
	return must(ptr(command(t, s, args...)).ToString())
}

// serverMicros is the server's time.
func serverMicros(t *testing.T, s *testserver.Server) int64 {
	t.Helper()
	at := must(ptr(command(t, s, "TIME")).AsStrSlice())
	return must(strconv.ParseInt(at[0]+fmt.Sprintf("%06s", at[1]), 10, 64))
}

// A mutex is given back by the beginning of its hold: by its own alone.
func TestAMutexIsGivenBackByItsOwnNumberAlone(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bubble) {
		p, q := b.peer("p", "orders"), b.peer("q", "orders")
		e, held := p.hold("a")
		other := q.entry("a")
		for _, proof := range []string{
			e.Proof(held.Number+1, held.Since), e.Proof(held.Number, held.Since+1), e.Proof(held.Number/10, held.Since),
			other.Proof(held.Number, held.Since), other.Hold(held.Number, held.Since),
		} {
			r := p.reply(p.Release(t.Context(), &p.keys, proof, nil, protocol.Queue, 0))
			require.Equal(t, protocol.LostIt, r.Outcome, proof)
			require.Equal(t, e.Ref(), p.holder())
		}
		next := q.entry("b")
		require.Equal(t, protocol.Queued, q.acquire(next).Outcome)
		again := p.entry("c")
		r := p.reply(p.Release(t.Context(), &p.keys, e.Proof(held.Number, held.Since), &again, protocol.Queue, 0))
		require.Equal(t, protocol.Queued, r.Outcome)
		require.Equal(t, next.Ref(), p.holder())
	})
}

// Whatever stands where a lock of another kind would keep its holds and is none: a mutex lets it alone, and its numbers
// rise although the server's clock went back.
func TestAMutexsNumbersRiseBesideWhatIsNoneOfItsBusiness(t *testing.T) {
	t.Parallel()
	onBoth(t, nil, func(t *testing.T, s *testserver.Server) {
		c := on(t, s)
		for what, put := range map[string][]string{
			"another type":    {"SET", "", "x"},
			"what is no hold": {"ZADD", "", "+inf", "not ours"},
		} {
			key := "beside " + what
			put[1] = "{" + key + "}:shared"
			command(t, s, put...)
			ahead := serverMicros(t, s) + time.Hour.Microseconds()
			command(t, s, "SET", "{"+key+"}:fence", strconv.FormatInt(ahead, 10))
			m := c.Mutex(key)
			for i := range int64(2) {
				ctx, err := m.TryLockContext(t.Context())
				require.NoError(t, err, key)
				require.Equal(t, ahead+1+i, leaseOf(t, ctx).Token()>>10, key)
				require.NoError(t, m.UnlockContext(ctx))
			}
		}
	})
}
