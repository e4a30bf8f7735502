// Command example works under a lock, and has Prometheus see it.
//
//	valkey-server &
//	go run ./example            # as often as you like, with another -listen each time
//	curl http://127.0.0.1:9464/metrics
//
// What to alert on is in ../alerts.yaml.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/valkey-io/valkey-go"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/valkeysync/valkeysync"
	valkeysyncotel "github.com/valkeysync/valkeysync/otel"
)

func main() {
	url := flag.String("url", "redis://127.0.0.1:6379", "the server")
	listen := flag.String("listen", "127.0.0.1:9464", "where Prometheus scrapes")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	l, err := net.Listen("tcp", *listen)
	if err == nil {
		err = run(ctx, *url, l)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run works, and has Prometheus scrape at l, until ctx ends.
func run(ctx context.Context, url string, l net.Listener) error {
	defer l.Close()
	o, err := valkey.ParseURL(url)
	if err != nil {
		return err
	}
	o.ConnWriteTimeout = 2 * time.Second // the lease is 10 s
	client, err := valkey.NewClient(o)
	if err != nil {
		return err
	}
	defer client.Close()
	app, err := newApp(client)
	if err != nil {
		return err
	}
	defer app.locks.Close()
	ctx, stop := context.WithCancel(ctx)
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	work.Go(func() { app.work(ctx) })

	mux := http.NewServeMux()
	mux.Handle("/metrics", app.metrics)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	defer context.AfterFunc(ctx, func() { server.Close() })()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// app is a program with locks, and what Prometheus may know of them.
type app struct {
	locks   *valkeysync.Client
	metrics http.Handler
}

func newApp(client valkey.Client, opts ...valkeysync.Option) (*app, error) {
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	if err != nil {
		return nil, err
	}
	telemetry, err := valkeysyncotel.New(
		valkeysyncotel.WithMeterProvider(metric.NewMeterProvider(metric.WithReader(reader))),
		valkeysyncotel.WithName(kind),
	)
	if err != nil {
		return nil, err
	}
	locks, err := valkeysync.New(client, append(opts, valkeysync.WithTracer(telemetry))...)
	if err != nil {
		return nil, err
	}
	telemetry.Observe(locks)
	return &app{locks: locks, metrics: promhttp.HandlerFor(registry, promhttp.HandlerOpts{})}, nil
}

// kind of what is locked: "account" of "account:7". There are many accounts, and few kinds.
func kind(key string) string {
	name, _, _ := strings.Cut(key, ":")
	return name
}

// work does something under a lock again and again, until ctx ends.
func (a *app) work(ctx context.Context) {
	for ctx.Err() == nil {
		mu := a.locks.Mutex(fmt.Sprintf("account:%d", rand.IntN(3)))
		_ = mu.Do(ctx, func(ctx context.Context) error {
			select {
			case <-time.After(rand.N(100 * time.Millisecond)):
			case <-ctx.Done():
			}
			return nil
		})
	}
}
