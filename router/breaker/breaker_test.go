package breaker_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/ringrift/ringlog/router/breaker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Two events that failed open a breaker, however often each did. Await returns to nobody while it is open, and is no
// attempt itself: after it one attempt is let through, and decides.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reported []string
		b := breaker.New(breaker.Config{Failures: 2, OpenFor: time.Minute}.OrDefault(), nil, func(ch breaker.Change) {
			kind, payload := ch.Notice()
			reported = append(
				reported,
				fmt.Sprint(
					kind,
					" ",
					payload["failures"],
					" ",
					payload["previous"],
					" ",
					payload["previous_seconds"],
					" ",
					payload["error"],
				),
			)
		})
		defer b.Close()
		fail := func(offset uint64) {
			leave, err := b.Enter(t.Context(), offset, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			leave(errors.New("boom"))
		}
		began := time.Now()
		fail(1)
		fail(1) // the same event counts once
		if err := b.Await(t.Context()); err != nil || time.Since(began) > 0 {
			t.Error("a closed breaker was waited for", err)
		}
		fail(2)
		if _, err := b.Enter(t.Context(), uint64(3), false, nil); !errors.Is(err, breaker.ErrOpen) {
			t.Error(err)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.Await(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := b.Await(t.Context()); err != nil || time.Since(began).Round(time.Second) != time.Minute {
			t.Error(time.Since(began), err)
		}
		leave, err := b.Enter(t.Context(), uint64(3), false, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Enter(t.Context(), uint64(3), false, nil); !errors.Is(err, breaker.ErrOpen) {
			t.Error("there are two probes", err)
		}
		leave(nil)
		want := []string{"CIRCUIT_BREAKER_THRESHOLD 1 <nil> <nil> boom", "CIRCUIT_BREAKER_OPENED 2 closed 0 boom",
			"CIRCUIT_BREAKER_HALF_OPEN 0 open 60.000000001 <nil>", "CIRCUIT_BREAKER_CLOSED 0 half-open 0 <nil>"}
		if fmt.Sprint(reported) != fmt.Sprint(want) {
			t.Errorf("%q", reported)
		}
	})
}

// An error that is harmless to the breaker counts as a success.
func TestHarmless(t *testing.T) {
	fine := errors.New("the event is at fault")
	b := breaker.New(
		breaker.Config{Failures: 1}.OrDefault(),
		func(err error) bool { return errors.Is(err, fine) },
		func(breaker.Change) { t.Error("it turned") },
	)
	defer b.Close()
	leave, err := b.Enter(t.Context(), uint64(3), false, nil)
	if err != nil {
		t.Fatal(err)
	}
	leave(fine)
	if st := b.Status(); st.State != "closed" {
		t.Errorf("%+v", st)
	}
}

func TestConfig(t *testing.T) {
	for _, c := range []breaker.Config{{Failures: -1}, {OpenFor: -1}, {Probes: -1}} {
		if c.Validate() == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
	if c := (breaker.Config{}).OrDefault(); c != (breaker.Config{Failures: 3, OpenFor: 300 * time.Second, Probes: 1}) {
		t.Errorf("%+v", c)
	}
}

// Those that wait probe in turn: one that always fails does not keep the others from it.
func TestProbesAreInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := breaker.New(breaker.Config{Failures: 1, OpenFor: time.Minute}.OrDefault(), nil, func(breaker.Change) {})
		defer b.Close()
		leave, err := b.Enter(t.Context(), 0, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		leave(errors.New("boom"))

		// Three wait, and again after each of their probes.
		var order []int
		ctx, cancel := context.WithCancel(t.Context())
		for event := 1; event <= 3; event++ {
			go func() {
				for {
					leave, err := b.Enter(ctx, event, true, nil)
					if err != nil {
						return
					}
					order = append(order, event)
					leave(errors.New("boom"))
				}
			}()
			synctest.Wait()
		}
		time.Sleep(6*time.Minute + time.Second)
		cancel()
		synctest.Wait()
		if got := fmt.Sprint(order); got != "[1 2 3 1 2 3]" {
			t.Error(got)
		}
	})
}
