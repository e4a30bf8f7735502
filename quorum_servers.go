package valkeysync

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/valkey-io/valkey-go"

	"github.com/valkeysync/valkeysync/internal/fault"
)

// independent refuses servers that would fall together, or count twice.
func (q *Quorum) independent(ctx context.Context) error {
	refuse := func(format string, args ...any) error {
		return fault.Errorf("%w: %s", ErrInvalidOption, fmt.Sprintf(format, args...))
	}
	if n := len(q.members); n < 3 {
		return refuse("%d servers: a majority of fewer than three does not survive the loss of one; give three or five, or use one server with Client.Mutex", n)
	}
	runs := map[string]int{} // by run id
	known := true
	for i, m := range q.members {
		switch {
		case m.c.server.Cluster:
			return refuse("server %d is a cluster, whose nodes are not independent of each other; give Clients of servers that know nothing of each other", i)
		case m.c.opts.client.prefix != q.members[0].c.opts.client.prefix:
			return refuse("server %d has the prefix %q, server 0 has %q: give all Clients the same WithPrefix", i, m.c.opts.client.prefix, q.members[0].c.opts.client.prefix)
		}
		run, role, err := m.identity(ctx)
		if err != nil {
			return fault.Errorf("server %d (%s): %w", i, m.name, err)
		}
		if role == "slave" || role == "replica" {
			return refuse("server %d (%s) is a replica: what it has is another's; give the primaries of servers that do not replicate each other", i, m.name)
		}
		if other, twice := runs[run]; twice && run != "" {
			return refuse("the Clients %d and %d are of one server (%s), which would count twice", other, i, m.name)
		}
		runs[run] = i
		known = known && run != "" && role != ""
	}
	if known {
		return nil
	}
	return q.apart(ctx, refuse)
}

// identity is the server's run id and its role; "" where that may not be asked.
func (m *member) identity(ctx context.Context) (run, role string, err error) {
	c := m.c.server.Client
	info, err := c.Do(ctx, c.B().Info().Section("server").Build()).ToString()
	if err != nil && !isReply(err) {
		return "", "", err
	}
	for line := range strings.Lines(info) {
		if id, ok := strings.CutPrefix(line, "run_id:"); ok {
			run = strings.TrimSpace(id)
		}
	}
	reply, err := c.Do(ctx, c.B().Role().Build()).ToArray()
	if err != nil && !isReply(err) {
		return "", "", err
	}
	if len(reply) > 0 {
		role, _ = reply[0].ToString()
	}
	return run, role, nil
}

// apart finds out by trying whether one server has what another was given.
func (q *Quorum) apart(ctx context.Context, refuse func(string, ...any) error) error {
	for i, m := range q.members {
		if err := q.alone(ctx, i, refuse); err != nil {
			return fault.Errorf("server %d (%s): %w", i, m.name, err)
		}
	}
	return nil
}

// alone writes a key to one server, looks for it on the others, and deletes it.
func (q *Quorum) alone(ctx context.Context, i int, refuse func(string, ...any) error) (err error) {
	c := q.members[i].c.server.Client
	key := q.members[i].c.opts.client.prefix + "valkeysync:probe:" + uuid.NewString()
	if err := c.Do(ctx, c.B().Set().Key(key).Value("probe").Px(startLimit).Build()).Error(); err != nil {
		return fault.Errorf("write %q: %w", key, err)
	}
	defer func() {
		if gone := c.Do(ctx, c.B().Del().Key(key).Build()).Error(); err == nil && gone != nil {
			err = fault.Errorf("delete %q: %w", key, gone)
		}
	}()
	if !sleep(ctx, 10*time.Millisecond) { // a replica gets it a little later
		return ctx.Err()
	}
	for j, other := range q.members {
		if j == i {
			continue
		}
		err := other.c.server.Client.Do(ctx, other.c.server.Client.B().Get().Key(key).Build()).Error()
		switch {
		case err == nil:
			return refuse("what the Client %d wrote, the Client %d reads (%s): they are of one server, or of one that replicates the other", i, j, other.name)
		case !valkey.IsValkeyNil(err):
			return fault.Errorf("read %q on server %d (%s): %w", key, j, other.name, err)
		}
	}
	return nil
}
