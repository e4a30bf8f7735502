package valkeysyncotel

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/valkeysynctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// stage is a server in a bubble, and all that is measured there.
type stage struct {
	*testing.T
	*valkeysynctest.Server
	*Telemetry
	reader *sdkmetric.ManualReader
	spans  *tracetest.InMemoryExporter
	tracer trace.Tracer // the program's own
}

func inBubble(t *testing.T, f func(t *testing.T, s *stage), opts ...Option) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{T: t, reader: sdkmetric.NewManualReader(), spans: tracetest.NewInMemoryExporter()}
		meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(s.reader))
		tracers := sdktrace.NewTracerProvider(sdktrace.WithSyncer(s.spans))
		s.tracer = tracers.Tracer("the program")
		var err error
		s.Telemetry, err = New(append([]Option{WithMeterProvider(meters), WithTracerProvider(tracers)}, opts...)...)
		require.NoError(t, err)
		s.Server = valkeysynctest.New(t)
		f(t, s)
	})
}

// client makes a Client that is traced and observed.
func (s *stage) client(opts ...valkeysync.Option) *valkeysync.Client {
	c := s.Client(append([]valkeysync.Option{valkeysync.WithTracer(s.Telemetry)}, opts...)...)
	s.Observe(c)
	return c
}

// metrics are all data points: by the name of the metric and the attributes, without the common beginning.
func (s *stage) metrics() map[string]string {
	synctest.Wait()
	points := map[string]string{}
	for _, m := range s.collect().Metrics {
		name := strings.TrimPrefix(m.Name, "valkeysync.")
		switch data := m.Data.(type) {
		case metricdata.Histogram[float64]:
			require.Equal(s.T, "s", m.Unit)
			for _, p := range data.DataPoints {
				points[name+labels(p.Attributes)] = fmt.Sprintf("%d: %gs", p.Count, p.Sum)
			}
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				points[name+labels(p.Attributes)] = fmt.Sprint(p.Value)
			}
		default:
			s.Fatalf("%s: %T", m.Name, m.Data)
		}
	}
	return points
}

func (s *stage) collect() metricdata.ScopeMetrics {
	var all metricdata.ResourceMetrics
	require.NoError(s.T, s.reader.Collect(s.Context(), &all))
	require.LessOrEqual(s.T, len(all.ScopeMetrics), 1)
	if len(all.ScopeMetrics) == 0 {
		return metricdata.ScopeMetrics{}
	}
	return all.ScopeMetrics[0]
}

// changed are the data points that are not as they were before, nor 0.
func (s *stage) changed(before map[string]string) map[string]string {
	now := s.metrics()
	for point, value := range now {
		if value == before[point] || value == "0" && before[point] == "" {
			delete(now, point)
		}
	}
	return now
}

func labels(set attribute.Set) string {
	var all []string
	for _, kv := range set.ToSlice() {
		all = append(all, strings.TrimPrefix(string(kv.Key), "valkeysync.")+"="+kv.Value.String())
	}
	return "{" + strings.Join(all, " ") + "}"
}

// under runs f in a span of the program.
func (s *stage) under(name string, f func(ctx context.Context)) {
	ctx, span := s.tracer.Start(s.Context(), name)
	defer span.End()
	f(ctx)
}

// ended are the spans that have ended, in that order.
func (s *stage) ended() tracetest.SpanStubs {
	synctest.Wait()
	return s.spans.GetSpans()
}

func names(spans tracetest.SpanStubs) []string {
	var all []string
	for _, span := range spans {
		all = append(all, span.Name)
	}
	return all
}
