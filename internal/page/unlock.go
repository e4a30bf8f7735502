package page

import (
	"context"
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/valkeysync/valkeysync/internal/words"
)

// unlockRequest asks to take a lock from those who were seen to hold it.
type unlockRequest struct {
	ID   string `json:"id"`   // lockJSON.ID
	Hold string `json:"hold"` // lockJSON.Hold
}

// unlockReply says what came of it. Lock is how it stands.
type unlockReply struct {
	Words string    `json:"words"`
	Lock  *lockJSON `json:"lock,omitempty"`
}

// unlock takes a lock from whoever holds it, if that is who the page has shown: 200. It refuses with 409, and does
// nothing, if it is not; with 403 where it is not allowed at all.
func (p *Page) unlock(w http.ResponseWriter, r *http.Request) {
	if !p.config.AllowUnlock {
		reply(w, http.StatusForbidden, unlockReply{Words: "This page may not take locks: valkeysync ui -allow-unlock"})
		return
	}
	// No form has this type, so no page of another origin sends it without asking first.
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		reply(w, http.StatusUnsupportedMediaType, unlockReply{Words: "Send application/json."})
		return
	}
	var asked unlockRequest
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10))
	body.DisallowUnknownFields()
	err := body.Decode(&asked)
	key, wrong := keyOf(asked.ID)
	if err != nil || wrong != nil || asked.Hold == "" {
		reply(w, http.StatusBadRequest, unlockReply{Words: "Send the id and the hold of a lock."})
		return
	}
	if !strings.HasPrefix(key, p.config.Prefix) {
		reply(w, http.StatusForbidden, unlockReply{Words: fmt.Sprintf("Not a lock of this page: its key does not begin with %s.", words.Printable(p.config.Prefix))})
		return
	}
	if !p.watch.enter(p.pace.streams + 1) {
		reply(w, http.StatusServiceUnavailable, unlockReply{Words: "Too many pages are open."})
		return
	}
	defer p.watch.leave()
	// What was begun is ended, also when the page is closed meanwhile.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), p.pace.unlocking)
	defer cancel()
	status, answer := p.take(ctx, key, asked.Hold)
	reply(w, status, answer)
}

func (p *Page) take(ctx context.Context, key, hold string) (int, unlockReply) {
	locks, err := p.watch.locks(ctx)
	if err != nil {
		return http.StatusBadGateway, unlockReply{Words: "The server cannot be reached: " + plain(err)}
	}
	st, err := locks.Status(ctx, p.config.name(key))
	if err != nil {
		return http.StatusBadGateway, unlockReply{Words: plain(err)}
	}
	taken := false
	if holdOf(st) == hold {
		if taken, err = locks.ForceUnlockIf(ctx, st); err == nil && !taken {
			st, err = locks.Status(ctx, p.config.name(key))
		}
		if err != nil {
			return http.StatusBadGateway, unlockReply{Words: plain(err)}
		}
	}
	if !taken {
		now := (&view{st: st, at: time.Now()}).json(time.Now())
		return http.StatusConflict, unlockReply{"It is no longer held by who you saw. Nothing was done.", &now}
	}
	p.watch.inbox.add(key, event{name: unlockedHere, at: time.Now()})
	for _, h := range st.Holders {
		p.board.note(lossEntry(lossUnlocked, st, h, time.Now()))
	}
	return http.StatusOK, unlockReply{Words: "Taken."}
}

func reply(w http.ResponseWriter, status int, j unlockReply) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(j)
}

// plain is an error for people.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "valkeysync: ") }
