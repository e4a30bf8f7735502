package valkeysyncotel

import (
	"errors"
	"fmt"
	"runtime/debug"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/valkeysync/valkeysync"
)

// scope names this module, whose metrics and spans they are.
const scope = "github.com/valkeysync/valkeysync/otel"

// The attributes.
const (
	kindKey          = attribute.Key("valkeysync.kind")
	modeKey          = attribute.Key("valkeysync.mode")
	nameKey          = attribute.Key("valkeysync.name")
	grantKey         = attribute.Key("valkeysync.grant")
	lossCauseKey     = attribute.Key("valkeysync.loss.cause")
	wakeupCauseKey   = attribute.Key("valkeysync.wakeup.cause")
	notificationsKey = attribute.Key("valkeysync.notifications")
	errorTypeKey     = attribute.Key("error.type")
	keyKey           = attribute.Key("valkeysync.key") // of spans alone, as those below
	tokenKey         = attribute.Key("valkeysync.token")
	permitsKey       = attribute.Key("valkeysync.permits")
)

// bounds are those that OpenTelemetry advises for calls to a database, and more at either end: a lock may be handed
// over in less than a millisecond, and be held for an hour.
var bounds = metric.WithExplicitBucketBoundaries(.0001, .0005, .001, .005, .01, .05, .1, .5, 1, 5, 10, 60, 300, 1800)

// Telemetry makes metrics and spans of what Clients do. Give it to them with [valkeysync.WithTracer], and them to
// Observe. It is safe for use by many goroutines. Make it with [New].
type Telemetry struct {
	tracer trace.Tracer
	name   func(key string) string

	waits, holds       metric.Float64Histogram
	waitsNow, holdsNow metric.Int64UpDownCounter
	counters           *counters           // of the Clients that are observed
	registration       metric.Registration // of their callback
}

var _ valkeysync.Tracer = (*Telemetry)(nil)

// New makes a Telemetry. It fails only where the MeterProvider refuses an instrument.
func New(opts ...Option) (*Telemetry, error) {
	o := options{meters: otel.GetMeterProvider(), tracers: otel.GetTracerProvider()}
	for _, opt := range opts {
		opt(&o)
	}
	version := version()
	m := maker{Meter: o.meters.Meter(scope, metric.WithInstrumentationVersion(version))}
	t := &Telemetry{
		tracer:   o.tracers.Tracer(scope, trace.WithInstrumentationVersion(version)),
		name:     o.name,
		waits:    m.seconds("valkeysync.wait.duration", "Time from asking for a lock to having it, or giving up."),
		waitsNow: m.upDown("valkeysync.wait.active", "{wait}", "Waits for a lock that are under way."),
		holds:    m.seconds("valkeysync.hold.duration", "Time from having a lock to the end of its unlock, or its loss."),
		holdsNow: m.upDown("valkeysync.hold.active", "{hold}", "Locks that are held."),
		counters: newCounters(&m),
	}
	var err error
	t.registration, err = m.RegisterCallback(t.counters.collect, m.observables...)
	if err := errors.Join(append(m.errs, err)...); err != nil {
		return nil, fmt.Errorf("valkeysyncotel: %w", err)
	}
	return t, nil
}

// Observe adds what c counts to the metrics, until stop is called or the Telemetry is closed. What c has counted by
// then stays in the sums, for a counter must not fall; call stop after [valkeysync.Client.Close]. Observing a Client
// twice is observing it once.
func (t *Telemetry) Observe(c *valkeysync.Client) (stop func()) {
	t.counters.add(c)
	return func() { t.counters.remove(c) }
}

// Close ends the observation of all Clients. What is traced goes on. A second Close does nothing.
func (t *Telemetry) Close() error { return t.registration.Unregister() }

// version is that of this module in the program; "" where it is not known.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == scope && m.Version != "(devel)" {
			return m.Version
		}
	}
	return ""
}

// maker makes instruments, and gathers what went wrong.
type maker struct {
	metric.Meter
	observables []metric.Observable
	errs        []error
}

func (m *maker) seconds(name, description string) metric.Float64Histogram {
	i, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description), bounds)
	m.errs = append(m.errs, err)
	return i
}

func (m *maker) upDown(name, unit, description string) metric.Int64UpDownCounter {
	i, err := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.errs = append(m.errs, err)
	return i
}

func (m *maker) counter(name, unit, description string) metric.Int64Observable {
	i, err := m.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.errs, m.observables = append(m.errs, err), append(m.observables, i)
	return i
}

func (m *maker) state(name, unit, description string) metric.Int64Observable {
	i, err := m.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	m.errs, m.observables = append(m.errs, err), append(m.observables, i)
	return i
}
