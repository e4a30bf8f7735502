// Package scan finds the locks of a server by their keys, without being in anybody's way.
package scan

import (
	"context"
	"fmt"
	"strings"

	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync"
)

// Step is how many keys one SCAN looks at.
const Step = 1000

// Locks looks through the keys of the server with SCAN, of all primaries of a cluster, Step at a time, and calls
// found with the whole name of every lock that begins with prefix, once for each, until found returns false. A
// key that another program locked looks like any other: it is found by those who wait for it, or have held it.
// Whether a lock is in use is for its status to tell.
//
// It ends after about most keys of each primary, and then returns that more were left. It blocks until it is
// through, ctx ends, or the server or found fails.
func Locks(ctx context.Context, c valkey.Client, prefix string, most int, found func(lock string) (more bool, err error)) (left bool, err error) {
	s := scanner{prefix: prefix, most: most, found: found, seen: map[string]bool{}}
	if c.Mode() != valkey.ClientModeCluster {
		_, err := s.node(ctx, c)
		return s.left, err
	}
	for _, node := range c.Nodes() { // replicas too, which have nothing new to tell
		if more, err := s.node(ctx, node); err != nil || !more {
			return s.left, err
		}
	}
	return s.left, nil
}

type scanner struct {
	prefix string
	most   int
	found  func(lock string) (more bool, err error)
	seen   map[string]bool
	left   bool
}

// Patterns match the keys of the locks that begin with prefix, and those of their helpers, {orders}:queue
// (docs/protocol.md), as glob patterns.
func Patterns(prefix string) []string {
	escaped := strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(prefix)
	if prefix == "" || prefix[0] == '{' {
		return []string{escaped + "*"}
	}
	return []string{escaped + "*", "{" + escaped + "*"}
}

func (s *scanner) node(ctx context.Context, node valkey.Client) (more bool, err error) {
	for _, pattern := range Patterns(s.prefix) {
		for cursor, looked := uint64(0), 0; ; looked += Step {
			if looked >= s.most {
				s.left = true
				break
			}
			page, err := node.Do(ctx, node.B().Scan().Cursor(cursor).Match(pattern).Count(Step).Build()).AsScanEntry()
			if err != nil {
				return false, fmt.Errorf("scan: %w", err)
			}
			if more, err := s.page(ctx, node, page.Elements); err != nil || !more {
				return false, err
			}
			if cursor = page.Cursor; cursor == 0 {
				break
			}
		}
	}
	return true, nil
}

// page takes the keys of one step.
func (s *scanner) page(ctx context.Context, node valkey.Client, keys []string) (more bool, err error) {
	var names, plain []string
	for _, key := range keys {
		if name, ok := LockOf(key); ok {
			names = append(names, name)
		} else {
			plain = append(plain, key)
		}
	}
	ours, err := Marked(ctx, node, plain)
	if err != nil {
		return false, err
	}
	for _, name := range append(names, ours...) {
		if s.seen[name] || !strings.HasPrefix(name, s.prefix) {
			continue
		}
		s.seen[name] = true
		if more, err := s.found(name); err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

// ourMark is how the value of a lock of ours begins.
const ourMark = "vs1 "

// Marked are those of the keys whose value is a hold of ours. It asks the server once, for all of them.
func Marked(ctx context.Context, c valkey.Client, keys []string) (ours []string, err error) {
	var values valkey.Commands
	for _, key := range keys {
		values = append(values, c.B().Getrange().Key(key).Start(0).End(int64(len(ourMark))-1).Build())
	}
	for i, r := range c.DoMulti(ctx, values...) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if s, err := r.ToString(); err == nil && s == ourMark { // another type, or another slot by now, is an error
			ours = append(ours, keys[i])
		}
	}
	return ours, nil
}

// LockOf is the lock that a helper key belongs to.
func LockOf(key string) (lock string, ok bool) {
	for _, suffix := range []string{":shared", ":queue", ":fence"} {
		base, found := strings.CutSuffix(key, suffix)
		if !found || !strings.Contains(base, "}") {
			continue
		}
		if inner, whole := strings.CutPrefix(base, "{"); whole && strings.Index(inner, "}") == len(inner)-1 {
			return inner[:len(inner)-1], true
		}
		return base, true // it has a hash tag of its own
	}
	return "", false
}

// Ours says whether what was found is a lock of ours, held or waited for now or in the last hour.
func Ours(st valkeysync.Status) bool {
	return st.Last > 0 || len(st.Queue) > 0 || len(st.Holders) > 0 && st.Holders[0].Token > 0
}

// Used says whether a lock is held or waited for.
func Used(st valkeysync.Status) bool { return st.State != valkeysync.StateFree || st.Waiting > 0 }
