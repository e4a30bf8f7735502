//go:build !race

package main

import (
	"context"
	"errors"
	"net/url"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

// etcd's server takes minutes to build with the race detector, and nothing of it is tested here: there it is
// left out (etcd_race.go).

// etcds is etcd's own mutex. A session is one holder to it, so each goroutine has one of its own.
var etcds = []contestant{{
	name:     "etcd",
	module:   "go.etcd.io/etcd/client/v3",
	settings: "`concurrency.NewMutex`, a `concurrency.NewSession` for each goroutine with its default TTL of 60 s; one etcd server with its defaults, so it writes to disk (fsync) with every change",
	store:    inEtcd,
	join: func(p place) (member, error) {
		client, err := etcdClient(p)
		if err != nil {
			return member{}, err
		}
		return member{
			locker: func(key string) (locker, error) {
				session, err := concurrency.NewSession(client)
				if err != nil {
					return nil, err
				}
				m := concurrency.NewMutex(session, key)
				return &lockPair{
					lock:   m.Lock,
					unlock: func(context.Context) error { return m.Unlock(context.Background()) },
				}, nil
			},
			close: func() { _ = client.Close() }, // what it returns is that it was closed
		}, nil
	},
}}

func etcdClient(p place) (*clientv3.Client, error) {
	c := clientv3.Config{Endpoints: []string{p.Etcd}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()}
	if p.wire != nil {
		c.DialOptions = append(c.DialOptions, grpc.WithStatsHandler(p.wire))
	}
	return clientv3.New(c)
}

// etcdPing asks etcd for something that it need not write or agree about.
func etcdPing(p place) (func() error, func(), error) {
	client, err := etcdClient(p)
	if err != nil {
		return nil, nil, err
	}
	return func() error {
		_, err := client.Get(context.Background(), "ping", clientv3.WithSerializable())
		return err
	}, func() { _ = client.Close() }, nil
}

// serveEtcd runs an etcd server in this process and returns its address.
func serveEtcd(dir string) (string, error) {
	loopback := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	c := embed.NewConfig()
	c.Dir = dir
	c.LogLevel = "error"
	c.LogOutputs = []string{os.DevNull}
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{loopback}, []url.URL{loopback}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{loopback}, []url.URL{loopback}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	server, err := embed.StartEtcd(c)
	if err != nil {
		return "", err
	}
	select {
	case <-server.Server.ReadyNotify():
		return server.Clients[0].Addr().String(), nil
	case <-time.After(30 * time.Second):
		return "", errors.New("etcd was not ready within 30 s")
	}
}

// TagRPC, HandleRPC, TagConn and HandleConn make a wire a stats.Handler of gRPC.
func (w *wire) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (w *wire) HandleRPC(_ context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.OutPayload); ok {
		w.sent.Add(1)
	}
}

func (w *wire) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (w *wire) HandleConn(context.Context, stats.ConnStats) {}
