package valkeysyncotel

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/valkeysync/valkeysync"
)

// acquisition is a [valkeysync.Trace].
type acquisition struct {
	*Telemetry
	asked  valkeysync.Acquisition
	ctx    context.Context // of the wait, then of the hold: it links what is measured with its span
	labels []attribute.KeyValue
	now    metric.MeasurementOption // those labels, for what is under way
	target string                   // in the names of spans
	span   trace.Span               // of the wait, then of the hold; nil: none
	had    time.Time
}

var kinds = map[string]string{"Mutex": "mutex", "RWMutex": "rwmutex", "Semaphore": "semaphore", "QuorumMutex": "quorum_mutex"}

// Acquire is for the library: see [valkeysync.Tracer].
func (t *Telemetry) Acquire(ctx context.Context, asked valkeysync.Acquisition) valkeysync.Trace {
	a := &acquisition{Telemetry: t, asked: asked, ctx: ctx, target: kinds[asked.Kind]}
	a.labels = append(a.labels, kindKey.String(a.target))
	switch {
	case asked.Kind != "RWMutex":
	case asked.Read:
		a.labels = append(a.labels, modeKey.String("read"))
	default:
		a.labels = append(a.labels, modeKey.String("write"))
	}
	if t.name != nil {
		if name := t.name(asked.Key); name != "" {
			a.labels = append(a.labels, nameKey.String(name))
			a.target = name
		}
	}
	a.labels = slices.Clip(a.labels)
	a.now = metric.WithAttributeSet(attribute.NewSet(a.labels...))
	if !asked.Try {
		t.waitsNow.Add(ctx, 1, a.now)
	}
	if trace.SpanContextFromContext(ctx).IsValid() {
		a.ctx, a.span = t.tracer.Start(ctx, "wait "+a.target, a.spanAttributes(), trace.WithTimestamp(asked.Began))
	}
	return a
}

func (a *acquisition) spanAttributes() trace.SpanStartEventOption {
	return trace.WithAttributes(append(a.labels, keyKey.String(a.asked.Key), permitsKey.Int64(a.asked.Permits))...)
}

// with are the labels, and how it ended.
func (a *acquisition) with(end attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributes(append(a.labels, end)...)
}

// Acquired is the end of the wait, and the beginning of the hold.
func (a *acquisition) Acquired(ctx context.Context, l *valkeysync.Lease, by valkeysync.Grant) context.Context {
	grant := grantKey.String(string(by))
	a.waited(grant)
	a.had = time.Now()
	if a.ctx = ctx; a.span != nil {
		a.span.SetAttributes(grant)
		a.span.End()
		token := tokenKey.Int64(l.Token())
		a.ctx, a.span = a.tracer.Start(ctx, "hold "+a.target, a.spanAttributes(), trace.WithAttributes(grant, token))
	}
	a.holdsNow.Add(a.ctx, 1, a.now)
	return a.ctx
}

// Failed is the end of the wait.
func (a *acquisition) Failed(err error) {
	kind := errorTypeKey.String(waitError(err))
	a.waited(kind)
	a.fail(kind, err)
	if a.span != nil {
		a.span.End()
	}
}

func (a *acquisition) waited(end attribute.KeyValue) {
	if !a.asked.Try {
		a.waitsNow.Add(a.ctx, -1, a.now)
	}
	a.waits.Record(a.ctx, time.Since(a.asked.Began).Seconds(), a.with(end))
}

// Released is the end of the hold.
func (a *acquisition) Released(err error) {
	held, end := time.Since(a.had).Seconds(), a.now
	if err != nil {
		kind := errorTypeKey.String(a.holdError(err))
		end = a.with(kind)
		a.fail(kind, err)
	}
	a.holdsNow.Add(a.ctx, -1, a.now)
	a.holds.Record(a.ctx, held, end)
	if a.span != nil {
		a.span.End()
	}
}

// fail marks the span.
func (a *acquisition) fail(kind attribute.KeyValue, err error) {
	if a.span == nil {
		return
	}
	a.span.SetAttributes(kind)
	if kind.Value.AsString() != locked {
		a.span.SetStatus(codes.Error, err.Error())
	}
}

// holdError names the end of a hold.
func (a *acquisition) holdError(err error) string {
	var lost *valkeysync.LostError
	if !errors.As(err, &lost) {
		return "unconfirmed"
	}
	if a.asked.Kind == "QuorumMutex" {
		a.counters.lostQuorum(lost.Cause)
	}
	return word(lost.Cause)
}

// locked is the answer to a try, and no failure.
const locked = "locked"

// word is a cause as an attribute's value.
func word(cause valkeysync.Cause) string { return strings.ReplaceAll(string(cause), " ", "_") }

// waitError names the end of a wait.
func waitError(err error) string {
	if wait, ok := errors.AsType[*valkeysync.WaitError](err); ok {
		err = wait.Err // what ended it; the rest tells what it met
	}
	for _, known := range []struct {
		is   error
		name string
	}{
		{context.DeadlineExceeded, "timeout"}, {context.Canceled, "canceled"}, {valkeysync.ErrLocked, locked},
		{valkeysync.ErrClosed, "closed"}, {valkeysync.ErrNotReplicated, "not_replicated"}, {valkeysync.ErrMismatch, "mismatch"},
	} {
		if errors.Is(err, known.is) {
			return known.name
		}
	}
	var majority *valkeysync.QuorumError
	var reply *valkey.ValkeyError
	switch {
	case errors.As(err, &majority):
		return "no_majority"
	case errors.As(err, &reply):
		for word := range strings.FieldsSeq(reply.Error()) { // a script's own may stand before it
			if slices.Contains(replies, word) {
				return word
			}
		}
	}
	return "_OTHER"
}

// replies are the first words of the server's errors that can end a wait or a try.
var replies = []string{
	"NOPERM", "NOAUTH", "WRONGPASS", "WRONGTYPE", "OOM", "READONLY", "LOADING", "MISCONF", "NOREPLICAS", "CLUSTERDOWN", "MASTERDOWN",
	"TRYAGAIN", "BUSY",
}
