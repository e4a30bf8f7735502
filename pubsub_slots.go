package valkeysync

import (
	"context"
	"errors"
	"net"
	"strconv"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/fault"
	"github.com/valkeysync/valkeysync/internal/protocol"
)

const (
	// mapAge is how old the map of a cluster gets while anybody listens. A broken connection, a slot that
	// moves and a message that nobody hears are noticed at once; a primary that became a replica and keeps
	// its subscribers, where nothing is sent, only by looking.
	mapAge = 5 * time.Second
	// mapLimit is how long one node may take to say how the slots lie.
	mapLimit = 500 * time.Millisecond
	// maxMoves is how often a subscription follows a node's word to another before the map is asked again.
	maxMoves = 3
)

// slotMap is which node of a cluster is the primary of each slot, as one node said it. Nil: nobody has.
type slotMap struct {
	at    time.Time
	addrs []string
	index [protocol.Slots]uint16 // in addrs, from 1; 0: nobody's
}

func (m *slotMap) primary(slot int) string {
	if m == nil || m.index[slot] == 0 {
		return ""
	}
	return m.addrs[m.index[slot]-1]
}

func (m *slotMap) stale() bool { return m == nil || time.Since(m.at) > mapAge }

func (m *slotMap) set(first, last int, addr string) {
	i := 0
	for i < len(m.addrs) && m.addrs[i] != addr {
		i++
	}
	if i == len(m.addrs) {
		m.addrs = append(m.addrs, addr)
	}
	for slot := first; slot <= last; slot++ {
		m.index[slot] = uint16(i + 1)
	}
}

// parseSlotMap reads the reply of CLUSTER SLOTS from the node at asked: entries of the first and the last
// slot and the nodes, primary first, each with its endpoint ("": as asked; "?": unknown) and port.
func parseSlotMap(reply []valkey.ValkeyMessage, asked string) (*slotMap, error) {
	bad := errors.New("CLUSTER SLOTS: not understood")
	m := &slotMap{at: time.Now()}
	for _, entry := range reply {
		fields, err := entry.ToArray()
		if err != nil || len(fields) < 3 {
			return nil, bad
		}
		first, err1 := fields[0].ToInt64()
		last, err2 := fields[1].ToInt64()
		node, err3 := fields[2].ToArray()
		if err1 != nil || err2 != nil || err3 != nil || first < 0 || first > last || last >= protocol.Slots || len(node) < 2 {
			return nil, bad
		}
		host, _ := node[0].ToString() // null: as asked
		port, err := node[1].ToInt64()
		if err != nil {
			return nil, bad
		}
		if addr := nodeAddr(host, strconv.FormatInt(port, 10), asked); addr != "" {
			m.set(int(first), int(last), addr)
		}
	}
	if len(m.addrs) == 0 {
		return nil, errors.New("CLUSTER SLOTS: no slot has a node")
	}
	return m, nil
}

// nodeAddr is a node's address as the cluster client knows it; "" where the cluster does not know it.
func nodeAddr(host, port, asked string) string {
	switch host {
	case "?":
		return ""
	case "":
		host, _, _ = net.SplitHostPort(asked)
	}
	return net.JoinHostPort(host, port)
}

// seek has the map of the cluster looked at.
func (h *hub) seek() {
	select {
	case h.astray <- struct{}{}:
	default:
	}
}

// steer keeps the topics on the nodes that own their slots.
func (h *hub) steer() {
	pause := minPause
	told := false
	for {
		var due <-chan time.Time
		switch waiting, lost := h.standing(); {
		case lost:
			due = time.After(pause)
			pause = min(2*pause, maxPause)
		case waiting:
			due = time.After(mapAge)
			pause = minPause
		}
		select {
		case <-h.astray:
		case <-due:
		case <-h.ctx.Done():
			return
		}
		err := h.locate()
		if err != nil && !told && h.ctx.Err() == nil {
			events.slotsUnknown.to(h.log, logError(err))
		}
		told = err != nil
		if !sleep(h.ctx, minPause) {
			return
		}
	}
}

// standing: whether anybody listens, and whether somebody is not subscribed who could be.
func (h *hub) standing() (waiting, lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.topics {
		if t.own && t.number == 0 && (!isReply(t.failure) || judge(t.failure) == passing) {
			return true, true
		}
	}
	return len(h.topics) > 0, false
}

// locate has some node say where the slots are, and settles the topics there.
func (h *hub) locate() error {
	m, err := h.ask()
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.slots = m
	for _, t := range h.topics {
		was := t.link
		t.moves = 0
		h.settle(t)
		if t.doubted {
			t.doubted = false
			if was != nil && t.link == was {
				was.breakUp()
			}
		}
	}
	return nil
}

// ask asks one node after the other, in no order.
func (h *hub) ask() (*slotMap, error) {
	err := errNoNode
	for addr, node := range h.client.Nodes() {
		m, failed := func() (*slotMap, error) {
			ctx, cancel := context.WithTimeout(h.ctx, mapLimit)
			defer cancel()
			// Arbitrary, so that valkey-go does not repeat it on a node that is down.
			reply, err := node.Do(ctx, node.B().Arbitrary("CLUSTER", "SLOTS").Build()).ToArray()
			if err != nil {
				return nil, err
			}
			return parseSlotMap(reply, addr)
		}()
		if failed == nil {
			return m, nil
		}
		err = fault.Errorf("node %s: %w", addr, failed)
	}
	return nil, err
}

// moved: a node says that a topic's slot is another's.
func (h *hub) moved(t *topic, l *link, to string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seek()
	if t.link != l || h.topics[t.channel] != t || h.slots == nil {
		return
	}
	t.moves++
	host, port, err := net.SplitHostPort(to)
	if addr := nodeAddr(host, port, l.addr); err == nil && addr != "" && t.moves <= maxMoves {
		h.slots.set(t.slot, t.slot, addr)
	} else {
		h.slots.index[t.slot] = 0
	}
	for _, other := range h.topics {
		if other.slot == t.slot {
			h.settle(other)
		}
	}
}

// introduce has the cluster client meet a node that the map names and it does not know: a routed command
// for a slot there is redirected.
func (h *hub) introduce(l *link) {
	h.mu.Lock()
	key := ""
	for _, t := range h.topics {
		if t.link == l {
			key = hashed(t.channel)
			break
		}
	}
	h.mu.Unlock()
	if key != "" {
		ctx, cancel := context.WithTimeout(h.ctx, mapLimit)
		defer cancel()
		h.client.Do(ctx, h.client.B().Spublish().Channel(key).Message("").Build())
	}
}
