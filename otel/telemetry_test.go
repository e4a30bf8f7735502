package valkeysyncotel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/valkeysync/valkeysync"
	"github.com/valkeysync/valkeysync/valkeysynctest"
)

func TestWaitsAndHoldsAreMeasured(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stage) {
		first, second := s.client().Mutex("orders"), s.client().Mutex("orders")
		first.Lock()
		time.AfterFunc(2*time.Second, first.Unlock)
		go second.Lock()
		time.Sleep(time.Second)
		now := s.metrics()
		require.Equal(t, "1", now["wait.active{kind=mutex}"])
		require.Equal(t, "1", now["hold.active{kind=mutex}"])
		require.Equal(t, "2", now["client.count{notifications=false}"], "miniredis has none")
		require.Equal(t, "0", now["client.count{notifications=true}"])
		time.Sleep(4 * time.Second)
		second.Unlock()
		now = s.metrics()
		require.Equal(t, "0", now["wait.active{kind=mutex}"])
		require.Equal(t, "0", now["hold.active{kind=mutex}"])
		require.Equal(t, "1: 0s", now["wait.duration{grant=reply kind=mutex}"])
		require.Equal(t, "1: 2s", now["wait.duration{grant=message kind=mutex}"])
		require.Equal(t, "2: 5s", now["hold.duration{kind=mutex}"])
		require.Equal(t, "1", now["handovers{grant=message}"])
		require.Equal(t, "0", now["handovers{grant=local}"])
		require.NotEqual(t, "0", now["renewals{}"])
	})
}

func TestPrimitivesAreToldApart(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stage) {
		c := s.client()
		rw, sem, m := c.RWMutex("rw"), c.Semaphore("sem", 3), c.Mutex("m")
		second := func() { time.Sleep(time.Second) }
		before := s.metrics()
		rw.Lock()
		second()
		rw.Unlock()
		rw.RLock()
		second()
		rw.RUnlock()
		require.NoError(t, sem.Acquire(t.Context(), 2))
		second()
		sem.Release(2)
		m.Lock()
		go m.Lock()
		second()
		m.Unlock()
		synctest.Wait()
		m.Unlock()
		require.Equal(t, map[string]string{
			"wait.duration{grant=reply kind=rwmutex mode=write}": "1: 0s",
			"hold.duration{kind=rwmutex mode=write}":             "1: 1s",
			"wait.duration{grant=reply kind=rwmutex mode=read}":  "1: 0s",
			"hold.duration{kind=rwmutex mode=read}":              "1: 1s",
			"wait.duration{grant=reply kind=semaphore}":          "1: 0s",
			"hold.duration{kind=semaphore}":                      "1: 1s",
			"wait.duration{grant=reply kind=mutex}":              "1: 0s",
			"wait.duration{grant=local kind=mutex}":              "1: 1s",
			"hold.duration{kind=mutex}":                          "2: 1s",
			"handovers{grant=local}":                             "1",
		}, s.changed(before))
	})
}

func TestWaitsThatFailAreToldApart(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stage) {
		s.client().Mutex("orders").Lock()
		c := s.client()
		m := c.Mutex("orders")
		before := s.metrics()
		require.False(t, m.TryLock())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.LockContext(ctx)
		require.Error(t, err)
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, cancel)
		_, err = m.LockContext(ctx)
		require.Error(t, err)
		_, err = c.RWMutex("orders").LockContext(t.Context())
		require.ErrorIs(t, err, valkeysync.ErrMismatch)
		done := make(chan error)
		go func() {
			_, err := m.LockContext(t.Context())
			done <- err
		}()
		synctest.Wait()
		require.NoError(t, c.Close())
		require.ErrorIs(t, <-done, valkeysync.ErrClosed)
		require.Equal(t, map[string]string{
			"wait.duration{error.type=locked kind=mutex}":                "1: 0s",
			"wait.duration{error.type=timeout kind=mutex}":               "1: 1s",
			"wait.duration{error.type=canceled kind=mutex}":              "1: 2s",
			"wait.duration{error.type=mismatch kind=rwmutex mode=write}": "1: 0s",
			"wait.duration{error.type=closed kind=mutex}":                "1: 0s",
		}, without(s.changed(before), "wakeups"))
	})
}

func without(points map[string]string, name string) map[string]string {
	for point := range points {
		if strings.HasPrefix(point, name+"{") {
			delete(points, point)
		}
	}
	return points
}

func TestErrorsOfWaitsHaveFewNames(t *testing.T) {
	for want, err := range map[string]error{
		"timeout": &valkeysync.WaitError{
			Err: fmt.Errorf("%w: %w", context.DeadlineExceeded, errors.New("the request's")), Holder: "somebody", Server: io.EOF,
		},
		"locked":         &valkeysync.WaitError{Err: valkeysync.ErrLocked, Holder: "somebody", Server: context.DeadlineExceeded},
		"not_replicated": fmt.Errorf("%w: 0 of 1", valkeysync.ErrNotReplicated),
		"no_majority":    &valkeysync.QuorumError{Key: "orders", Errs: []*valkeysync.ServerError{{Err: io.EOF}}},
		"_OTHER":         io.EOF,
	} {
		require.Equal(t, want, waitError(err), err)
	}
}

func TestTheServersOwnErrorsAreNamedByTheirFirstWord(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stage) {
		c := s.client()
		raw := s.Valkey()
		require.NoError(t, raw.Do(t.Context(), raw.B().Sadd().Key("orders").Member("x").Build()).Error())
		before := s.metrics()
		_, err := c.Mutex("orders").LockContext(t.Context())
		require.Error(t, err)
		require.Contains(t, s.changed(before), "wait.duration{error.type=WRONGTYPE kind=mutex}")
	})
}

func TestLossesAreCounted(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stage) {
		c := s.client(valkeysync.WithOnLost(func(string, error) {}))
		before := s.metrics()
		for _, cause := range []string{"expired", "taken", "deleted", "unreachable", "max_hold", "closed"} {
			require.Equal(t, "0", before["losses{loss.cause="+cause+"}"], "there before the first loss")
		}
		ctx, err := c.Mutex("orders").LockContext(t.Context())
		require.NoError(t, err)
		time.Sleep(time.Second)
		s.Lose("orders")
		<-ctx.Done()
		now := s.changed(before)
		require.Equal(t, "1", now["losses{loss.cause=deleted}"])
		require.Equal(t, "1: 1s", now["hold.duration{error.type=deleted kind=mutex}"])
		require.NotContains(t, now, "hold.duration{kind=mutex}")
		require.Equal(t, "0", s.metrics()["hold.active{kind=mutex}"])

		before = s.metrics()
		ctx, err = c.Mutex("orders", valkeysync.WithMaxHold(time.Second)).LockContext(t.Context())
		require.NoError(t, err)
		<-ctx.Done()
		require.Equal(t, "1", s.changed(before)["losses{loss.cause=max_hold}"])
	})
}

func TestLossesOfAQuorumsLocksAreCounted(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stage) {
		servers := []*valkeysynctest.Server{s.Server, valkeysynctest.New(t), valkeysynctest.New(t)}
		var clients []*valkeysync.Client
		for _, server := range servers {
			c := server.Client(valkeysync.WithTracer(s.Telemetry))
			s.Observe(c)
			clients = append(clients, c)
		}
		q, err := valkeysync.NewQuorum(clients...)
		require.NoError(t, err)
		defer q.Close()
		m := q.Mutex("orders")
		before := s.metrics()
		ctx, err := m.LockContext(t.Context())
		require.NoError(t, err)
		for _, server := range servers {
			server.Flush()
		}
		<-ctx.Done()
		require.ErrorIs(t, m.UnlockContext(ctx), valkeysync.ErrLeaseLost)
		now := s.changed(before)
		require.Equal(t, "1", now["losses{loss.cause=deleted}"])
		require.Contains(t, now, "hold.duration{error.type=deleted kind=quorum_mutex}")
	})
}

func TestCountersOutliveTheirClients(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stage) {
		held := func() *valkeysync.Client {
			c := s.Client()
			c.Mutex("orders").Lock()
			time.Sleep(10 * time.Second)
			require.NoError(t, c.Close())
			return c
		}
		first, second := held(), held()
		renewals := func(cs ...*valkeysync.Client) string {
			n := uint64(0)
			for _, c := range cs {
				n += c.Stats().Renewals
			}
			return fmt.Sprint(n)
		}
		require.NotEqual(t, "0", renewals(first))
		stop := s.Observe(first)
		s.Observe(first)
		s.Observe(second)
		require.Equal(t, renewals(first, second), s.metrics()["renewals{}"])
		require.Equal(t, "2", s.metrics()["client.count{notifications=false}"])
		stop()
		stop()
		require.Equal(t, renewals(first, second), s.metrics()["renewals{}"])
		require.Equal(t, "1", s.metrics()["client.count{notifications=false}"])
		require.NoError(t, s.Close())
		require.NotContains(t, s.metrics(), "renewals{}")
		require.NoError(t, s.Close())
	})
}

func TestOutagesAreSeen(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stage) {
		c := s.client(valkeysync.WithCrashDetection(time.Minute))
		m := c.Mutex("orders")
		m.Lock()
		before := s.metrics()
		s.Cut()
		time.Sleep(5 * time.Second) // in which a renewal is due
		s.Mend()
		time.Sleep(5 * time.Second)
		now := s.changed(before)
		require.Contains(t, now, "renewal.errors{}")
		require.Contains(t, now, "reconnects{}")
		m.Unlock()
	})
}

// The key has no end of values, and is nowhere among the attributes of metrics.
func TestNoMetricHasTheKey(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stage) {
		m := s.client().Mutex("order:81624")
		m.Lock()
		m.Unlock()
		require.NotContains(t, fmt.Sprint(s.metrics()), "81624")
	})
	kind := func(key string) string { name, _, _ := strings.Cut(strings.TrimPrefix(key, "app:"), ":"); return name }
	inBubble(t, func(t *testing.T, s *stage) {
		m := s.client(valkeysync.WithPrefix("app:")).Mutex("order:81624")
		m.Lock()
		now := s.metrics()
		require.Equal(t, "1", now["hold.active{kind=mutex name=order}"])
		require.NotContains(t, fmt.Sprint(now), "81624")
		m.Unlock()
	}, WithName(kind))
}

func TestSpansOfWaitAndHold(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stage) {
		other := s.client().Mutex("orders")
		other.Lock()
		time.AfterFunc(2*time.Second, other.Unlock)
		start := time.Now()
		m := s.client().Mutex("orders")
		var token int64
		s.under("job", func(ctx context.Context) {
			require.NoError(t, m.Do(ctx, func(ctx context.Context) error {
				_, work := s.tracer.Start(ctx, "work")
				defer work.End()
				time.Sleep(3 * time.Second)
				lease, _ := valkeysync.FromContext(ctx)
				token = lease.Token()
				return nil
			}))
		})
		spans := s.ended()
		require.Equal(t, []string{"wait mutex", "work", "hold mutex", "job"}, names(spans))
		wait, work, hold, job := spans[0], spans[1], spans[2], spans[3]
		require.Equal(t, job.SpanContext.SpanID(), wait.Parent.SpanID())
		require.Equal(t, job.SpanContext.SpanID(), hold.Parent.SpanID())
		require.Equal(t, hold.SpanContext.SpanID(), work.Parent.SpanID())
		require.Equal(t, start, wait.StartTime)
		require.Equal(t, start.Add(2*time.Second), wait.EndTime)
		require.Equal(t, start.Add(2*time.Second), hold.StartTime)
		require.Equal(t, start.Add(5*time.Second), hold.EndTime)
		require.Equal(t, "{grant=message key=orders kind=mutex permits=1}", labels(attribute.NewSet(wait.Attributes...)))
		require.Equal(t, fmt.Sprintf("{grant=message key=orders kind=mutex permits=1 token=%d}", token), labels(attribute.NewSet(hold.Attributes...)))
		require.Equal(t, codes.Unset, wait.Status.Code)
		require.Equal(t, codes.Unset, hold.Status.Code)
		require.Equal(t, scope, wait.InstrumentationScope.Name)
	})
}

func TestSpansSayWhatWentWrong(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stage) {
		m := s.client().Mutex("orders")
		s.under("job", func(ctx context.Context) {
			held, err := m.LockContext(ctx)
			require.NoError(t, err)
			_, err = s.client().Mutex("orders").TryLockContext(ctx)
			require.ErrorIs(t, err, valkeysync.ErrLocked)
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err = s.client().Mutex("orders").LockContext(short)
			require.Error(t, err)
			synctest.Wait() // it has left the queue: it would be given the lock, which is then taken and not deleted
			s.Lose("orders")
			<-held.Done()
			synctest.Wait()
		})
		spans := s.ended()
		require.Equal(t, []string{"wait orders", "wait orders", "wait orders", "hold orders", "job"}, names(spans))
		tried, gaveUp, lost := spans[1], spans[2], spans[3]
		require.Equal(t, codes.Unset, tried.Status.Code, "the answer to a try")
		require.Contains(t, tried.Attributes, attribute.String("error.type", "locked"))
		require.Equal(t, codes.Error, gaveUp.Status.Code)
		require.Contains(t, gaveUp.Status.Description, "held by client 1")
		require.Contains(t, gaveUp.Attributes, attribute.String("error.type", "timeout"))
		require.Equal(t, codes.Error, lost.Status.Code)
		require.Contains(t, lost.Attributes, attribute.String("error.type", "deleted"))
		require.Contains(t, lost.Attributes, attribute.String("valkeysync.name", "orders"))
	}, WithName(func(key string) string { return key }))
}

func TestALockAloneIsNoTrace(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stage) {
		m := s.client().Mutex("orders")
		m.Lock()
		m.Unlock()
		require.NoError(t, m.Do(t.Context(), func(context.Context) error { return nil }))
		require.Empty(t, s.ended())
	})
}

// Who looks at a slow wait in a histogram finds its trace.
func TestMeasurementsAreLinkedWithTheirSpans(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stage) {
		m := s.client().Mutex("orders")
		s.under("job", func(ctx context.Context) {
			require.NoError(t, m.Do(ctx, func(context.Context) error { return nil }))
		})
		spans := map[string]string{}
		for _, m := range s.collect().Metrics {
			if data, ok := m.Data.(metricdata.Histogram[float64]); ok {
				require.Len(t, data.DataPoints[0].Exemplars, 1)
				spans[m.Name] = fmt.Sprintf("%x", data.DataPoints[0].Exemplars[0].SpanID)
			}
		}
		ended := s.ended()
		require.Equal(t, map[string]string{
			"valkeysync.wait.duration": ended[0].SpanContext.SpanID().String(),
			"valkeysync.hold.duration": ended[1].SpanContext.SpanID().String(),
		}, spans)
	})
}

func TestTheGlobalProvidersAreTheDefault(t *testing.T) {
	meters, tracers := otel.GetMeterProvider(), otel.GetTracerProvider()
	defer func() {
		otel.SetMeterProvider(meters)
		otel.SetTracerProvider(tracers)
	}()
	reader, spans := sdkmetric.NewManualReader(), tracetest.NewInMemoryExporter()
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))
	telemetry, err := New()
	require.NoError(t, err)
	m := valkeysynctest.New(t, valkeysync.WithTracer(telemetry)).Client().Mutex("orders")
	ctx, job := otel.Tracer("the program").Start(t.Context(), "job")
	require.NoError(t, m.Do(ctx, func(context.Context) error { return nil }))
	job.End()
	require.Equal(t, []string{"wait mutex", "hold mutex", "job"}, names(spans.GetSpans()))
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	require.Equal(t, scope, all.ScopeMetrics[0].Scope.Name)
}

// refusing is a MeterProvider that makes no histograms.
type refusing struct{ noop.MeterProvider }

func (refusing) Meter(string, ...metric.MeterOption) metric.Meter { return refusingMeter{} }

type refusingMeter struct{ noop.Meter }

func (refusingMeter) Float64Histogram(name string, _ ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return nil, fmt.Errorf("no %s: %w", name, errors.ErrUnsupported)
}

func TestAProviderThatRefusesIsAnError(t *testing.T) {
	_, err := New(WithMeterProvider(refusing{}))
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "valkeysync.wait.duration")
}

// What it costs: nothing is measured against a server here, for that takes longer than all of this.
func BenchmarkAcquisition(b *testing.B) {
	for name, meters := range map[string]metric.MeterProvider{
		"provider=none": noop.NewMeterProvider(), "provider=sdk": sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())),
	} {
		b.Run(name, func(b *testing.B) {
			telemetry, err := New(WithMeterProvider(meters))
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				a := telemetry.Acquire(b.Context(), valkeysync.Acquisition{Key: "orders", Kind: "Mutex", Permits: 1, Began: time.Now()})
				a.Acquired(b.Context(), nil, valkeysync.GrantReply)
				a.Released(nil)
			}
		})
	}
}
