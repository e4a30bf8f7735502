package page

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// newsJSON is a message of the stream. The first of a stream has all locks; those after it have what changed.
type newsJSON struct {
	Run   string     `json:"run"`
	Whole *wholeJSON `json:"whole,omitempty"`
	State *state     `json:"state,omitempty"`
	Locks []lockJSON `json:"locks,omitempty"`
	Gone  []string   `json:"gone,omitempty"`
	Log   []entry    `json:"log,omitempty"`
}

// wholeJSON says that a message's locks are all there are.
type wholeJSON struct {
	Server string `json:"server"`
	Prefix text   `json:"prefix"`
	Unlock bool   `json:"unlock"` // it may be asked for
}

// stream sends what the page shows, as server-sent events, until the page or the program ends. Every stream begins
// with a snapshot, so one that was interrupted misses nothing of the locks; of the log it gets what came after
// its Last-Event-ID. A page that reads too slowly gets the latest of what it has missed, and nobody waits for it;
// one that does not read at all is given up.
func (p *Page) stream(w http.ResponseWriter, r *http.Request) {
	if !p.watch.enter(p.pace.streams) {
		http.Error(w, fmt.Sprintf("%d pages are open already: close one", p.pace.streams), http.StatusServiceUnavailable)
		return
	}
	defer p.watch.leave()
	reader := p.board.read(p.seen(r.Header.Get("Last-Event-ID")))
	defer reader.close()

	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy is not to collect it
	out := http.NewResponseController(w)
	send := func(message string) bool {
		// Not every ResponseWriter has deadlines; a server's has.
		_ = out.SetWriteDeadline(time.Now().Add(p.pace.writing))
		_, err := fmt.Fprint(w, message)
		return err == nil && out.Flush() == nil
	}
	if !send(fmt.Sprintf("retry: %d\n\n", p.pace.retry.Milliseconds())) {
		return
	}
	alive := time.NewTicker(p.pace.alive)
	defer alive.Stop()
	for {
		select {
		case <-reader.kick:
		case <-alive.C:
			if !send(":\n\n") {
				return
			}
			continue
		case <-r.Context().Done():
			return
		case <-p.ctx.Done():
			return
		}
		if n := reader.take(); !n.empty() && !send(p.message(n, time.Now())) {
			return
		}
		select { // the next changes go together
		case <-time.After(p.pace.push):
		case <-r.Context().Done():
			return
		case <-p.ctx.Done():
			return
		}
	}
}

// message is news as an event.
func (p *Page) message(n news, now time.Time) string {
	j := newsJSON{Run: p.board.run, State: n.state, Log: n.log}
	if n.whole {
		j.Whole = &wholeJSON{p.config.Server, shown(p.config.Prefix), p.config.AllowUnlock}
		if p.config.Prefix == "" {
			j.Whole.Prefix = text{}
		}
	}
	for _, v := range n.locks {
		j.Locks = append(j.Locks, v.json(now))
	}
	for _, key := range n.gone {
		j.Gone = append(j.Gone, idOf(key))
	}
	data, err := json.Marshal(j)
	if err != nil {
		panic(err) // it is made of strings and numbers
	}
	return fmt.Sprintf("id: %s.%d\ndata: %s\n\n", p.board.run, n.seq, data)
}

// seen is the last line of the log that the sender of this Last-Event-ID has; 0 for that of another process.
func (p *Page) seen(id string) int64 {
	run, seq, _ := strings.Cut(id, ".")
	n, err := strconv.ParseInt(seq, 10, 64)
	if err != nil || run != p.board.run {
		return 0
	}
	return n
}
