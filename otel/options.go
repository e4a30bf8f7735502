package valkeysyncotel

import (
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Option sets one thing of a [Telemetry].
type Option func(*options)

type options struct {
	meters  metric.MeterProvider
	tracers trace.TracerProvider
	name    func(key string) string
}

// WithMeterProvider is where metrics go. Default: the global one.
func WithMeterProvider(p metric.MeterProvider) Option { return func(o *options) { o.meters = p } }

// WithTracerProvider is where spans go. Default: the global one.
func WithTracerProvider(p trace.TracerProvider) Option { return func(o *options) { o.tracers = p } }

// WithName gives waits and holds an attribute valkeysync.name, which f makes of the key (as it stands on the server,
// prefix included): "order" of "app:order:81624". It must have few values; "" leaves it out. f is called for every
// acquisition, by many goroutines at the same time. Default: none.
func WithName(f func(key string) string) Option { return func(o *options) { o.name = f } }
