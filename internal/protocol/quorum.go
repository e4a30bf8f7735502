package protocol

import (
	"context"
	"strings"
	"time"
)

// The scripts of a lock on a majority of independent servers, each of which runs them by itself: what is said
// here is said of one of them.

var (
	quorumLibs = []string{"keys", "clock", "number", "quorum"}

	quorumTakeScript = newScript("quorum_take", quorumLibs, "value", "lease", "latest")
	quorumKeepScript = newScript("quorum_keep", quorumLibs, "value", "lease", "number", "latest")
	quorumDropScript = newScript("quorum_drop", quorumLibs, "value", "number")
)

// quorumMark begins the value of a lock on a majority. To all that speak of one server's locks it is a foreign
// one.
const quorumMark = "vq1 "

// QuorumValue is the value of a lock on a majority, the same on all servers: random is its proof of ownership,
// name is for people.
func QuorumValue(random, name string) string { return quorumMark + random + " " + name }

// QuorumName is the name in a value that QuorumValue has made.
func QuorumName(value string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(value, quorumMark)
	_, name, cut := strings.Cut(rest, " ")
	return name, ok && cut
}

// QuorumChannel is where a server says that a lock was given back there.
func (k *Keys) QuorumChannel() string { return "valkeysync:quorum:" + k.Lock }

// Turnstile is the key of the Mutex in which those wait who want the lock. It begins as the lock's own does, so
// that the rights to that are enough, also to hear of it.
func (k *Keys) Turnstile() string { return k.Lock + ":turnstile" }

func (s *Server) quorum(ctx context.Context, sc *script, k *Keys, args ...string) (Reply, error) {
	m, err := sc.runOn(ctx, s, k, append(k.list[:len(k.list):len(k.list)], k.Turnstile()), args...)
	if err != nil {
		return Reply{}, err
	}
	return parseReply(sc, k, m)
}

// QuorumTake takes the key if it is free: Held, Busy or Late. The Waiting of its reply and of the others' is 1
// where somebody is at the turnstile of this server.
func (s *Server) QuorumTake(ctx context.Context, k *Keys, value string, lease time.Duration, latest int64) (Reply, error) {
	return s.quorum(ctx, quorumTakeScript, k, value, itoa(lease.Milliseconds()), itoa(latest))
}

// QuorumKeep sets the lease anew and raises the fence to number, if the key is ours: Held, LostIt or Late. Where
// it is gone it is set again until the server time latest; never, if that is 0.
func (s *Server) QuorumKeep(ctx context.Context, k *Keys, value string, lease time.Duration, number, latest int64) (Reply, error) {
	until := ""
	if latest != 0 {
		until = itoa(latest)
	}
	return s.quorum(ctx, quorumKeepScript, k, value, itoa(lease.Milliseconds()), itoa(number), until)
}

// QuorumDrop gives the key back, if it is ours: Released or LostIt.
func (s *Server) QuorumDrop(ctx context.Context, k *Keys, value string, number int64) (Reply, error) {
	return s.quorum(ctx, quorumDropScript, k, value, itoa(number))
}
