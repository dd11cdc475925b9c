package batcher

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/fsm"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/raftnode/clock"
)

// wire stands where raft would be: it keeps the frames that are proposed until
// the test lands them.
type wire struct {
	mu     sync.Mutex
	frames []*heldFuture
}

type heldFuture struct {
	frame    *frame.Frame
	done     chan struct{}
	err      error
	response any
}

func (f *heldFuture) Error() error  { <-f.done; return f.err }
func (f *heldFuture) Response() any { return f.response }
func (f *heldFuture) Index() uint64 { return 0 }

func (w *wire) apply(data []byte, _ time.Duration) raft.ApplyFuture {
	f, err := frame.Decode(data)
	if err != nil {
		panic(err)
	}
	h := &heldFuture{frame: f, done: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.frames = append(w.frames, h)
	return h
}

func (w *wire) flying() []*heldFuture {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.frames
}

// land answers the oldest n frames, each command with its number in the frame.
func (w *wire) land(n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.frames[:n] {
		out := fsm.Outcome{}
		for i := range h.frame.Commands {
			out.Results = append(out.Results, fsm.Result{First: uint64(i + 1)})
		}
		h.err, h.response = err, out
		close(h.done)
	}
	w.frames = w.frames[n:]
}

func bench(queueBytes int) (*wire, *Batcher) {
	w := &wire{}
	p := New("n1", Limits{QueueRequests: 1000, QueueBytes: queueBytes}, clock.New(clock.System()),
		func() (uint64, fsm.Sum) { return 0, fsm.Sum{} },
		func() uint32 { return fsm.FeatureLevel }, w.apply)
	return w, p
}

// ask proposes in the background and reports how it ended.
func ask(ctx context.Context, p *Batcher, r frame.Request) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := p.Propose(ctx, r)
		done <- err
	}()
	synctest.Wait()
	return done
}

// leading starts a term and opens the intake.
func leading(w *wire, p *Batcher, term uint64) {
	p.Shift(IntakeWaiting, term)
	started := make(chan error, 1)
	go func() { started <- p.ProposeNow(term, frame.TermStart{}) }()
	synctest.Wait()
	w.land(1, nil)
	if err := <-started; err != nil {
		panic(err)
	}
	p.Shift(IntakeOpen, term)
}

func publishing(payload string) frame.Request {
	e := event.New(event.TrainingCompleted, []byte(payload))
	var b frame.Batch
	b.Add(&e, e.Hash())
	return frame.Request{Command: frame.Publish{Count: 1}, Batch: &b}
}

func tick() frame.Request { return frame.Request{Command: frame.Tick{}} }

func TestALoneRequestGoesOutAtOnceAndOthersShareTheNextFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := bench(1 << 20)
		defer p.Close()
		leading(w, p, 1)
		var asked []<-chan error
		for range 100 {
			asked = append(asked, ask(t.Context(), p, tick()))
		}
		if n := len(w.flying()); n != smallInFlight {
			t.Fatalf("%d frames for 100 small requests with none landed, want %d", n, smallInFlight)
		}
		w.land(1, nil)
		synctest.Wait()
		if last := w.flying()[1]; len(last.frame.Commands) != 98 {
			t.Errorf("the third frame has %d of the 98 requests that waited", len(last.frame.Commands))
		}
		w.land(2, nil)
		for _, done := range asked {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestFullFramesFillThePipelineAndALargeRequestTravelsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := bench(64 << 20)
		defer p.Close()
		leading(w, p, 1)
		large := publishing(`{"x": "` + strings.Repeat("x", 2*frameTarget) + `"}`)
		for range maxInFlight + 3 {
			ask(t.Context(), p, large)
		}
		flying := w.flying()
		if len(flying) != maxInFlight {
			t.Fatalf("%d frames in flight, want %d", len(flying), maxInFlight)
		}
		for _, h := range flying {
			if len(h.frame.Commands) != 1 {
				t.Errorf("a request above the target shares a frame with %d others", len(h.frame.Commands)-1)
			}
		}
		w.land(maxInFlight, nil)
		synctest.Wait()
		w.land(3, nil)
	})
}

func TestRequestsOfATermWaitForItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := bench(1 << 20)
		defer p.Close()
		if err := <-ask(t.Context(), p, tick()); !errors.Is(err, ErrNoLeader) {
			t.Errorf("without leadership: %v", err)
		}
		p.Shift(IntakeWaiting, 7)
		waiting := ask(t.Context(), p, tick())
		p.Shift(IntakeOpen, 7)
		synctest.Wait()
		if len(w.flying()) > 0 || p.OpenTerm() != 0 {
			t.Fatal("a request went out before the term start")
		}
		started := make(chan error, 1)
		go func() { started <- p.ProposeNow(7, frame.TermStart{}) }()
		synctest.Wait()
		if f := w.flying(); len(f) != 1 || f[0].frame.Commands[0].Kind() != frame.KindTermStart {
			t.Fatalf("%d frames, the first not the term start alone", len(f))
		}
		w.land(1, nil)
		if err := <-started; err != nil {
			t.Fatal(err)
		}
		p.Shift(IntakeOpen, 7)
		synctest.Wait()
		w.land(1, nil)
		if err := <-waiting; err != nil {
			t.Error(err)
		}
	})
}

func TestWhatIsToldOfARequestWhoseLeaderFell(t *testing.T) {
	for _, test := range []struct {
		raft error
		want error
	}{
		{raft.ErrLeadershipLost, ErrOutcomeUnknown},
		{raft.ErrRaftShutdown, ErrOutcomeUnknown},
		{errors.New("disk"), ErrOutcomeUnknown},
		{raft.ErrNotLeader, ErrNoLeader},
		{raft.ErrEnqueueTimeout, ErrNoLeader},
		{raft.ErrLeadershipTransferInProgress, ErrNoLeader},
	} {
		t.Run(test.raft.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, p := bench(1 << 20)
				defer p.Close()
				leading(w, p, 1)
				flying := ask(t.Context(), p, tick())
				w.land(1, test.raft)
				err := <-flying
				if !errors.Is(err, test.want) || errors.Is(err, ErrNoLeader) && errors.Is(err, ErrOutcomeUnknown) {
					t.Errorf("%v, want %v and no other", err, test.want)
				}
			})
		})
	}
}

func TestAnAbandonedRequestSaysWhetherItIsOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := bench(1 << 20)
		defer p.Close()
		leading(w, p, 1)
		ctx, cancel := context.WithCancel(t.Context())
		ask(t.Context(), p, tick())
		flying := ask(ctx, p, tick())
		queued := ask(ctx, p, tick())
		cancel()
		if err := <-flying; !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
			t.Errorf("in flight: %v", err)
		}
		if err := <-queued; errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
			t.Errorf("in the queue: %v", err)
		}
		w.land(2, nil)
		synctest.Wait()
		if n := len(w.flying()); n > 0 {
			t.Errorf("%d frames went out for a withdrawn request", n)
		}
	})
}

func TestTheQueueIsBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, err := tick().Prepare()
		if err != nil {
			t.Fatal(err)
		}
		w, p := bench(3 * one.Bytes())
		defer p.Close()
		leading(w, p, 1)
		for range smallInFlight + 1 {
			ask(t.Context(), p, tick())
		}
		if err := <-ask(t.Context(), p, tick()); !errors.Is(err, ErrOverloaded) {
			t.Errorf("past the bound: %v", err)
		}
		w.land(smallInFlight, nil)
		synctest.Wait()
		done := ask(t.Context(), p, tick())
		w.land(len(w.flying()), nil)
		if err := <-done; err != nil {
			t.Errorf("below the bound again: %v", err)
		}
		for len(w.flying()) > 0 {
			w.land(1, nil)
			synctest.Wait()
		}
	})
}

// Requests are counted until they are answered, whatever becomes of them; what is no
// publish finds room a little longer, what goes aside always, and one that is alone
// however large it is.
func TestTheQueueIsBoundedInRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := bench(1 << 20)
		p.limits.QueueRequests = 4
		defer p.Close()
		leading(w, p, 1)
		one := publishing(`{"n": 1}`)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 4 {
			if i == 3 {
				ask(ctx, p, one)
				continue
			}
			ask(t.Context(), p, one)
		}
		for range 2 {
			if err := <-ask(t.Context(), p, one); !errors.Is(err, ErrOverloaded) {
				t.Errorf("past the bound: %v", err)
			}
		}
		if s := p.Status(); s.Requests != 4 || s.Refused != 2 || s.Bytes == 0 {
			t.Errorf("%+v", s)
		}
		if peak, refused := p.Load(); peak.Requests != 4 || refused != 2 {
			t.Errorf("%+v, %d refused", peak, refused)
		}
		cancel() // the last of the four is in the queue
		synctest.Wait()
		for range 1 + 1 + spareRequests {
			ask(t.Context(), p, tick())
		}
		if err := <-ask(t.Context(), p, tick()); !errors.Is(err, ErrOverloaded) {
			t.Errorf("past the reserved room: %v", err)
		}
		proposed := make(chan error, 1)
		go func() { proposed <- p.ProposeUnqueued(frame.Pressure{Active: true}) }()
		synctest.Wait()
		f := w.flying()
		if last := f[len(f)-1].frame.Commands; len(last) != 1 || last[0].Kind() != frame.KindPressure {
			t.Errorf("it waits with the others: %d commands", len(last))
		}
		for len(w.flying()) > 0 {
			w.land(1, nil)
			synctest.Wait()
		}
		if err := <-proposed; err != nil {
			t.Error(err)
		}
		if s := p.Status(); s.Requests != 0 || s.Bytes != 0 {
			t.Errorf("all are answered, and there are %+v", s)
		}
		if p.Pause(1); p.ProposeUnqueued(frame.Pressure{}) == nil {
			t.Error("something was proposed after an intent")
		}
		p.Resume(1)
		p.limits.QueueBytes = 1
		large := ask(t.Context(), p, one)
		w.land(1, nil)
		if err := <-large; err != nil {
			t.Errorf("alone: %v", err)
		}
	})
}

func TestAPauseRefusesAndResumesOnlyItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, p := bench(1 << 20)
		defer p.Close()
		leading(w, p, 3)
		if p.Pause(2) || !p.Pause(3) {
			t.Fatal("paused another term, or not its own")
		}
		if err := <-ask(t.Context(), p, tick()); !errors.Is(err, ErrNoLeader) {
			t.Errorf("while paused: %v", err)
		}
		p.Shift(IntakeClosed, 0)
		p.Resume(3)
		if p.OpenTerm() != 0 {
			t.Error("a pause of a lost term opened the intake")
		}
		if err := p.ProposeNow(3, frame.IntentAbort{}); !errors.Is(err, ErrNoLeader) {
			t.Errorf("direct in a lost term: %v", err)
		}
		if len(w.flying()) > 0 {
			t.Error("something went out")
		}
	})
}
