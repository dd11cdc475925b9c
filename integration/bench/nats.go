package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/ringrift/ringlog/cmd/ringlog/devcluster"
	"github.com/ringrift/ringlog/event"
)

// natsSystem is JetStream with one stream of three replicas in files.
// As shipped it acknowledges before it syncs; with sync_interval: always it promises what ringlog promises.
type natsSystem struct {
	always bool // sync_interval: always
}

const (
	// The stream has this name in every session.
	streamName = "EVENTS"
	// The default of JetStream.
	duplicateWindow = 2 * time.Minute
)

func (s *natsSystem) name() string {
	if s.always {
		return "nats-always"
	}
	return "nats-shipped"
}

func (s *natsSystem) settings() []string {
	syncs := "sync_interval as shipped (2 min): acknowledged before it is synced"
	if s.always {
		syncs = "sync_interval: always"
	}
	return []string{
		"JetStream, 3 servers, one stream R3, file storage, limits retention without limits; " + syncs,
		"Nats-Msg-Id = 16 bytes of the content hash, duplicate window 2 min; " +
			"subject events.TYPE, no other header; client connected to all three",
		"PublishAsync with 1024 and 4096 pending, atomic batches of 1000 with 8 at a time; the best counts",
		"readers: ordered pull consumer with 10 000 messages asked for in advance, ordered push consumer; " +
			"durable pull consumers R3, max_ack_pending 20 000",
	}
}

func (s *natsSystem) sizes(quick bool) sizes {
	if quick {
		return sizes{read: 50_000, consume: 50_000, group: 50_000, written: 30_000}
	}
	return sizes{read: 200_000, consume: 200_000, group: 200_000, written: 200_000}
}

// serveNATS is the hidden command that runs one server until a signal ends it.
// The server reads a file, as nats-server does for a user.
func serveNATS(config string) error {
	opts, err := server.ProcessConfigFile(config)
	if err != nil {
		return err
	}
	s, err := server.NewServer(opts)
	if err != nil {
		return err
	}
	// Its log goes to the file that spawn has made of its outputs.
	s.ConfigureLogger()
	if err := server.Run(s); err != nil {
		return err
	}
	s.WaitForShutdown()
	return nil
}

// start runs three servers, each this program again with the hidden command, and connects to them.
func (s *natsSystem) start(ctx context.Context, dir string) (_ session, err error) {
	ports, err := devcluster.FreePorts(6)
	if err != nil {
		return nil, err
	}
	n := &natsSession{}
	// A start that fails ends the servers that it has started.
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close(ctx))
		}
	}()
	// The first three ports are for clients, the others for routes between the servers.
	var urls []string
	for i := range 3 {
		name := "n" + strconv.Itoa(i+1)
		config := filepath.Join(dir, name+".conf")
		if err := os.WriteFile(config, []byte(s.config(dir, name, ports[i], ports[3+i], ports[3:])), 0o600); err != nil {
			return nil, err
		}
		c, err := spawnSelf(dir, name, "serve-nats", config)
		if err != nil {
			return nil, err
		}
		n.servers = append(n.servers, c)
		urls = append(urls, fmt.Sprintf("nats://127.0.0.1:%d", ports[i]))
	}
	return n, n.connect(ctx, strings.Join(urls, ","))
}

// config is a server's configuration file. Its routes are to the other servers.
func (s *natsSystem) config(dir, name string, clients, cluster int, all []int) string {
	// Without the line the server syncs at the interval that is shipped.
	syncs := ""
	if s.always {
		syncs = "sync_interval: always"
	}
	var routes []string
	// A route to itself is of no use.
	for _, port := range all {
		if port != cluster {
			routes = append(routes, fmt.Sprintf("nats-route://127.0.0.1:%d", port))
		}
	}
	return fmt.Sprintf(`server_name: %s
listen: 127.0.0.1:%d
jetstream { store_dir: %q, %s }
cluster { name: bench, listen: 127.0.0.1:%d, routes: [%s] }
`, name, clients, filepath.Join(dir, name), syncs, cluster, strings.Join(routes, ", "))
}

// natsSession is three servers and one client of all of them.
type natsSession struct {
	servers children
	conn    *nats.Conn
	js      jetstream.JetStream
	stream  jetstream.Stream
	// It makes the names of durable consumers unique.
	consumers int // made so far
}

// connect connects to the servers once they answer, and creates the stream.
func (n *natsSession) connect(ctx context.Context, urls string) error {
	// The connection knows all three servers, whichever answers first.
	err := n.servers.until(ctx, "a server of NATS", func(context.Context) (err error) {
		n.conn, err = nats.Connect(urls, nats.Name("bench"))
		return err
	})
	if err != nil {
		return err
	}
	n.js, err = jetstream.New(n.conn)
	if err != nil {
		return err
	}
	// A stream can be created once the servers have elected a leader of their metadata.
	// Before that a request may never be answered, so each attempt has a timeout of its own.
	return n.servers.until(ctx, "a stream", func(ctx context.Context) (err error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		n.stream, err = n.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name:     streamName,
			Subjects: []string{"events.>"},
			Storage:  jetstream.FileStorage,
			Replicas: 3,
			// JetStream looks for duplicates, as ringlog does.
			Duplicates:         duplicateWindow,
			AllowAtomicPublish: true,
		})
		return err
	})
}

// publishWays has first the way by which works that read fill the stream.
func (n *natsSession) publishWays() []string {
	return []string{"PublishAsync, 4096 pending", "PublishAsync, 1024 pending", "atomic batches of 1000, 8 at a time"}
}

func (n *natsSession) publish(ctx context.Context, way string, src *source, q *quota) (tally, error) {
	switch way {
	case n.publishWays()[0]:
		return n.publishAsync(ctx, 4096, src, q)
	case n.publishWays()[1]:
		return n.publishAsync(ctx, 1024, src, q)
	default:
		return eachBatch(ctx, 8, 1000, src, q, n.publishAtomic)
	}
}

// message returns an event as it is published to JetStream.
// Its id is half of the hash, so no two events share it.
func message(ev *event.Event) *nats.Msg {
	hash := ev.Hash()
	return &nats.Msg{Subject: "events." + string(ev.Type), Data: ev.Payload,
		Header: nats.Header{nats.MsgIdHdr: []string{hex.EncodeToString(hash[:16])}}}
}

// publishAsync publishes events one by one with at most pending unanswered.
func (n *natsSession) publishAsync(ctx context.Context, pending int, src *source, q *quota) (t tally, err error) {
	// The client calls both handlers below in goroutines of its own.
	// It holds the first error. The loop ends once it has one.
	failed := make(chan error, 1)
	fail := func(err error) {
		select {
		case failed <- err:
		default: // another was first
		}
	}
	js, err := jetstream.New(n.conn,
		jetstream.WithPublishAsyncMaxPending(pending),
		jetstream.WithPublishAsyncTimeout(30*time.Second),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) { fail(err) }),
		jetstream.WithPublishAsyncAckHandler(func(_ jetstream.JetStream, _ *nats.Msg, ack *jetstream.PubAck) {
			// A duplicate is acknowledged and not stored.
			if ack.Duplicate {
				fail(errDuplicate)
			}
		}))
	if err != nil {
		return t, err
	}
	// It ends the subscription to the answers of this publisher.
	defer js.CleanupPublisher()
	// Publish until the quota is used up or an answer is an error; then wait for all answers.
	g := src.generator()
	for ctx.Err() == nil && len(failed) == 0 && q.take(1) == 1 {
		ev := g.next()
		// It waits for room among the pending messages, 30 s at most.
		if _, err := js.PublishMsgAsync(message(&ev), jetstream.WithStallWait(30*time.Second)); err != nil {
			return t, err
		}
		t.events, t.bytes = t.events+1, t.bytes+len(ev.Payload)
	}
	// The first channel is closed when no message is pending.
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return t, ctx.Err()
	}
	select {
	case err = <-failed:
	default:
	}
	return t, err
}

// publishAtomic publishes a batch that is stored whole or not at all: numbered messages with a
// common id. The last one commits the batch and is answered.
func (n *natsSession) publishAtomic(ctx context.Context, events []event.Event) error {
	// The first and the last message are answered, those between are not.
	// Messages of a batch share what follows the prefix of an inbox name: it is unique, and has no dot.
	id := nats.NewInbox()
	for i := range events {
		m := message(&events[i])
		m.Header["Nats-Batch-Id"] = []string{id[len(nats.InboxPrefix):]}
		m.Header["Nats-Batch-Sequence"] = []string{strconv.Itoa(i + 1)}
		// Nobody answers these. What is wrong with one of them fails the commit.
		if i < len(events)-1 && i > 0 {
			if err := n.conn.PublishMsg(m); err != nil {
				return err
			}
			continue
		}
		if i == len(events)-1 {
			m.Header["Nats-Batch-Commit"] = []string{"1"}
		}
		answer, err := n.conn.RequestMsgWithContext(ctx, m) // the first is answered too, empty if it is well
		if err != nil {
			return err
		}
		// JetStream reports an error in the data of an answer.
		if strings.Contains(string(answer.Data), `"error"`) {
			return fmt.Errorf("atomic batch: %s", answer.Data)
		}
	}
	return nil
}

// publishOne fails for a duplicate, which is acknowledged sooner since it is not stored.
func (n *natsSession) publishOne(ctx context.Context, ev event.Event) error {
	ack, err := n.js.PublishMsg(ctx, message(&ev))
	if err == nil && ack.Duplicate {
		err = errDuplicate
	}
	return err
}

func (n *natsSession) stored(ctx context.Context) (int, error) {
	info, err := n.stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	return int(info.State.Msgs), nil
}

// leaderPID returns the process that leads the stream, which may be another than leads the metadata.
func (n *natsSession) leaderPID(ctx context.Context) (int, error) {
	info, err := n.stream.Info(ctx)
	if err != nil {
		return 0, err
	}
	for _, c := range n.servers {
		if info.Cluster != nil && c.name == info.Cluster.Leader {
			return c.pid(), nil
		}
	}
	return 0, errors.New("the stream has no leader")
}

func (n *natsSession) pids() []int { return n.servers.pids() }

func (n *natsSession) close(context.Context) error {
	if n.conn != nil {
		n.conn.Close()
	}
	return n.servers.stop()
}
