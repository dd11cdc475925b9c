package router_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/router"
)

// Close lets handlers finish, and publish what they have to, and leaves in the log what
// waits for another attempt.
func TestCloseDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		r := open(t, log, router.Options{})
		var direct seen
		subscribe(
			t,
			r,
			router.Subscription{Name: "direct", Types: []string{"TRAINING_COMPLETED"}, Direct: true, Handler: direct.handle},
		)
		working := subscribe(t, r, router.Subscription{Name: "working", Types: []string{"TRAINING_PROGRESS"}, Durable: true,
			Handler: func(ctx context.Context, ev event.Event) error {
				time.Sleep(5 * time.Second)
				_, err := r.Publish(ctx, event.New(event.TrainingCompleted, nil))
				return err
			}})
		retrying := subscribe(t, r, router.Subscription{Name: "retrying", Types: []string{"TRAINING_PROGRESS"}, Durable: true,
			Handler: func(context.Context, event.Event) error { return errBoom }})
		publish(t, r, progress("a", 0))
		publish(t, r, progress("b", 1))
		synctest.Wait()
		began := time.Now()
		closed := make(chan error)
		go func() { closed <- r.Close(t.Context()) }()
		time.Sleep(time.Second)
		if _, err := r.Publish(t.Context(), progress("c", 2)); !errors.Is(err, router.ErrClosed) {
			t.Errorf("publish: %v", err)
		}
		if _, err := r.Subscribe(t.Context(), router.Subscription{Name: "x", Handler: direct.handle}); !errors.Is(
			err,
			router.ErrClosed,
		) {
			t.Errorf("subscribe: %v", err)
		}
		if err := <-closed; err != nil || time.Since(began) != 10*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		if len(direct.all()) != 2 || log.committed("working") != 2 || working.Status().Handled != 2 {
			t.Errorf("%d, committed %d, %+v", len(direct.all()), log.committed("working"), working.Status())
		}
		if st := retrying.Status(); log.committed("retrying") != 0 || st.Left != 2 || st.Failed != 0 ||
			st.FailedAttempts != 1 {
			t.Errorf("%+v", st)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Without time Close cuts handlers off, and names those that have not returned; what was not
// handled is redelivered.
func TestCloseCutsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		r, err := router.New(log, router.Options{})
		if err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		spec := router.Subscription{
			Name:    "obedient",
			Types:   []string{"TRAINING_PROGRESS"},
			Durable: true,
			Retries: []time.Duration{},
			Handler: func(ctx context.Context, _ event.Event) error { <-ctx.Done(); return ctx.Err() },
		}
		obedient := subscribe(t, r, spec)
		deaf := subscribe(t, r, router.Subscription{Name: "deaf", Types: []string{"TRAINING_PROGRESS"},
			Handler: func(context.Context, event.Event) error { <-release; return nil }})
		publish(t, r, progress("a", 0))
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := deaf.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "deaf") {
			t.Errorf("%v", err)
		}
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		close(release)
		synctest.Wait()
		if st := obedient.Status(); log.committed("obedient") != 0 || len(log.stored()) != 0 || st.Failed != 0 ||
			st.Left != 1 {
			t.Errorf("the cursor is at %d, %d letters, %+v", log.committed("obedient"), len(log.stored()), st)
		}
		var all seen
		spec.Handler = all.handle
		second, err := router.New(log, router.Options{})
		if err != nil {
			t.Fatal(err)
		}
		subscribe(t, second, spec)
		synctest.Wait()
		shut(t, second)
		if all.numbers() != "a0" {
			t.Errorf("it was not redelivered: %s", all.numbers())
		}
	})
}

// One subscription ends alone, and its name is free again.
func TestASubscriptionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog()
		r := open(t, log, router.Options{})
		var first, second seen
		spec := router.Subscription{
			Name:    "trainer",
			Types:   []string{"TRAINING_PROGRESS"},
			Durable: true,
			Handler: first.handle,
		}
		sub := subscribe(t, r, spec)
		if _, err := r.Subscribe(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "of that name") {
			t.Errorf("twice the same name: %v", err)
		}
		publish(t, r, progress("a", 0))
		synctest.Wait()
		if err := errors.Join(sub.Close(t.Context()), sub.Close(t.Context())); err != nil {
			t.Error(err)
		}
		publish(t, r, progress("a", 1))
		spec.Handler = second.handle
		subscribe(t, r, spec)
		synctest.Wait()
		if got := first.numbers() + "|" + second.numbers(); got != "a0|a1" || len(r.Subscribers()) != 1 {
			t.Error(got, len(r.Subscribers()))
		}
	})
}
