package valkeysync

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/valkeysync/valkeysync/internal/protocol"
)

// bubbles are several independent servers in one bubble.
type bubbles struct {
	t       *testing.T
	servers []*bubble
	names   int
}

func inBubbles(t *testing.T, n int, f func(t *testing.T, b *bubbles)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bubbles{t: t}
		for range n {
			b.servers = append(b.servers, newBubble(t))
		}
		f(t, b)
	})
}

// party is one process with a Quorum, and what stands between it and each of the servers.
type party struct {
	*Quorum
	taps []*tap
}

func (b *bubbles) party(opts ...Option) *party {
	p := new(party)
	var clients []*Client
	b.names++
	for _, s := range b.servers {
		tap := s.tap()
		p.taps = append(p.taps, tap)
		clients = append(clients, newClient(b.t, tap, append([]Option{WithName("party" + strconv.Itoa(b.names))}, opts...)...))
	}
	q, err := NewQuorum(clients...)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { require.NoError(b.t, q.Close()) })
	p.Quorum = q
	return p
}

// freeze: the servers of these numbers do not answer this party.
func (p *party) freeze(servers ...int) { p.bend(swallow, servers...) }

// thaw ends freeze.
func (p *party) thaw(servers ...int) { p.bend(nil, servers...) }

func (p *party) bend(r relay, servers ...int) {
	for _, i := range servers {
		for name := range protocol.Sources() {
			p.taps[i].always(name, r)
		}
	}
}

// holders is what the key holds on each of the servers.
func (b *bubbles) holders(key string) []string {
	all := make([]string, len(b.servers))
	for i, s := range b.servers {
		s.CheckGetOrEmpty(key, &all[i])
	}
	return all
}

// CheckGetOrEmpty reads a key that may not be there.
func (b *bubble) CheckGetOrEmpty(key string, value *string) {
	if b.Exists(key) {
		*value, _ = b.Get(key)
	}
}

// free requires that no server has the key any more, once all that is under way has come to an end.
func (b *bubbles) free(key string) {
	b.t.Helper()
	synctest.Wait()
	require.Equal(b.t, make([]string, len(b.servers)), b.holders(key))
}

// held is on how many servers the key is held by one and the same.
func (b *bubbles) held(key string) int {
	count := map[string]int{}
	most := 0
	for _, v := range b.holders(key) {
		if v != "" {
			count[v]++
			most = max(most, count[v])
		}
	}
	return most
}

func sizes(t *testing.T, f func(t *testing.T, n int)) {
	for _, n := range []int{3, 5} {
		t.Run(fmt.Sprint(n, " servers"), func(t *testing.T) { f(t, n) })
	}
}
