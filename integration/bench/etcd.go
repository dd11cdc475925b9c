package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/ringrift/ringlog/cmd/ringlog/devcluster"
	"github.com/ringrift/ringlog/event"
)

// etcdSystem is etcd with three members.
type etcdSystem struct{}

const (
	// The keys of events begin with it. The key by which start sees that etcd is up does not.
	etcdPrefix = "e/"
	// In bytes. As shipped it is 2 GiB, after which etcd accepts no more.
	etcdQuota = 16 << 30
	etcdTxn   = 128 // the most operations of a transaction, as shipped
)

func (etcdSystem) name() string { return "etcd" }

func (etcdSystem) settings() []string {
	return []string{
		"3 members, as shipped but for --quota-backend-bytes 16 GiB; fsync always",
		"one key an event, 16 bytes of the content hash; it has no dedup " +
			"(the same content is the same key, with another revision)",
		"512 concurrent Puts, and transactions of 128 Puts with 16 at a time; the best counts. " +
			"The reader is a watch from the first revision",
	}
}

// Two works alone need a size: etcd has neither durable consumers nor groups.
func (etcdSystem) sizes(quick bool) sizes {
	if quick {
		return sizes{read: 10_000, written: 10_000}
	}
	return sizes{read: 10_000, written: 50_000}
}

// serveETCD is the hidden command that runs one member until a signal ends it.
func serveETCD(name, dir, clientURL, peerURL, initial string) error {
	// What is not set below is as etcd ships it.
	cfg := embed.NewConfig()
	client, err := url.Parse(clientURL)
	if err != nil {
		return err
	}
	peer, err := url.Parse(peerURL)
	if err != nil {
		return err
	}
	cfg.Name = name
	cfg.Dir = dir
	cfg.InitialCluster = initial
	cfg.QuotaBackendBytes = etcdQuota
	// Its information about each election and snapshot would fill the log of the server.
	cfg.LogLevel = "warn"
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	// It runs until a signal, or until it fails by itself.
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer e.Close()
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	select {
	case <-signals:
		return nil
	case err := <-e.Err():
		return err
	case <-e.Server.StopNotify():
		return errors.New("the member stopped")
	}
}

// start runs three members, each this program again with the hidden command, and connects to them.
func (etcdSystem) start(ctx context.Context, dir string) (_ session, err error) {
	ports, err := devcluster.FreePorts(6)
	if err != nil {
		return nil, err
	}
	e := &etcdSession{}
	// A start that fails ends the members that it has started.
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close(ctx))
		}
	}()
	// The first three ports are for clients, the others for peers.
	at := func(i int) string { return fmt.Sprintf("http://127.0.0.1:%d", ports[i]) }
	// initial lists the whole cluster: each member is given all of them.
	var initial, clients []string
	for i := range 3 {
		initial = append(initial, fmt.Sprintf("n%d=%s", i+1, at(3+i)))
		clients = append(clients, at(i))
	}
	for i := range 3 {
		name := "n" + strconv.Itoa(i+1)
		c, err := spawnSelf(dir, name,
			"serve-etcd", name, filepath.Join(dir, name), at(i), at(3+i), strings.Join(initial, ","))
		if err != nil {
			return nil, err
		}
		e.servers = append(e.servers, c)
	}
	// The client outlives ctx, which ends the start alone.
	e.client, err = clientv3.New(clientv3.Config{
		Endpoints:   clients,
		DialTimeout: 5 * time.Second,
		Logger:      zap.NewNop(),
		Context:     context.WithoutCancel(ctx),
	})
	if err != nil {
		return nil, err
	}
	// A Put is answered once the members have elected a leader.
	return e, e.servers.until(ctx, "etcd", func(ctx context.Context) error {
		// Before the election a Put waits for its timeout, and is then tried again.
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := e.client.Put(ctx, "ready", "")
		return err
	})
}

// etcdSession is three members and one client of all of them.
type etcdSession struct {
	servers children
	client  *clientv3.Client
}

func (e *etcdSession) publishWays() []string {
	return []string{"512 Puts at a time", "transactions of 128 Puts, 16 at a time"}
}

// publish puts events one by one or in transactions, whichever the way is.
func (e *etcdSession) publish(ctx context.Context, way string, src *source, q *quota) (tally, error) {
	if way == e.publishWays()[0] {
		return eachBatch(ctx, 512, 1, src, q, func(ctx context.Context, events []event.Event) error {
			return e.publishOne(ctx, events[0])
		})
	}
	return eachBatch(ctx, 16, etcdTxn, src, q, func(ctx context.Context, events []event.Event) error {
		// One transaction for the whole batch.
		puts := make([]clientv3.Op, len(events))
		for i := range events {
			puts[i] = clientv3.OpPut(etcdKey(&events[i]), string(events[i].Payload))
		}
		_, err := e.client.Txn(ctx).Then(puts...).Commit()
		return err
	})
}

// etcdKey is the key under which an event is put: the same content has the same key.
// It is half of the hash, so no two events share it.
func etcdKey(ev *event.Event) string {
	hash := ev.Hash()
	return etcdPrefix + string(hash[:16])
}

func (e *etcdSession) publishOne(ctx context.Context, ev event.Event) error {
	_, err := e.client.Put(ctx, etcdKey(&ev), string(ev.Payload))
	return err
}

// stored counts keys; an event that was put twice counts once.
func (e *etcdSession) stored(ctx context.Context) (int, error) {
	r, err := e.client.Get(ctx, etcdPrefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, err
	}
	return int(r.Count), nil
}

func (e *etcdSession) readWays() []string { return []string{"Watch from the first revision"} }

func (e *etcdSession) read(ctx context.Context, _ string, n int) error {
	// The end of the context ends the watch, so the members send no more than is read.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for r := range e.client.Watch(ctx, etcdPrefix, clientv3.WithPrefix(), clientv3.WithRev(1)) {
		if err := r.Err(); err != nil {
			return err
		}
		// A response may have many events, so n may fall below 0.
		n -= len(r.Events)
		if n <= 0 {
			return nil
		}
	}
	// The channel was closed too early: ctx has ended, or etcd ended the watch.
	return errors.Join(errShort, ctx.Err())
}

func (e *etcdSession) leaderPID(ctx context.Context) (int, error) {
	for i, endpoint := range e.client.Endpoints() {
		s, err := e.client.Status(ctx, endpoint)
		if err != nil {
			return 0, err
		}
		// Endpoints are in the order in which the members were started.
		if s.Leader == s.Header.MemberId {
			return e.servers[i].pid(), nil
		}
	}
	return 0, errors.New("no member leads")
}

func (e *etcdSession) pids() []int { return e.servers.pids() }

// close may be called after a start that failed early: then there is no client yet.
func (e *etcdSession) close(context.Context) (err error) {
	if e.client != nil {
		err = e.client.Close()
	}
	return errors.Join(err, e.servers.stop())
}
