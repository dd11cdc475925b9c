package joint

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// call is one that was made.
type call struct {
	after time.Duration // since the test began
	items []int
}

// recorded returns calls that find odd items, and those that were made. A call with the item 0 fails.
func recorded(t *testing.T) (c *Calls[int], made func() []call) {
	began := time.Now()
	var mu sync.Mutex
	var list []call
	ctx, cancel := context.WithCancel(t.Context())
	c = &Calls[int]{Context: ctx, Running: new(sync.WaitGroup), Apart: 50 * time.Millisecond, Most: 4,
		Call: func(_ context.Context, items []int) (found []int, err error) {
			mu.Lock()
			defer mu.Unlock()
			list = append(list, call{time.Since(began), slices.Sorted(slices.Values(items))})
			if slices.Contains(items, 0) {
				return nil, errors.New("zero")
			}
			return slices.DeleteFunc(slices.Clone(items), func(n int) bool { return n%2 == 0 }), nil
		}}
	t.Cleanup(func() {
		cancel()
		c.Running.Wait()
	})
	return c, func() []call {
		mu.Lock()
		defer mu.Unlock()
		return list
	}
}

func TestCallsAreJoined(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, made := recorded(t)
		// One that comes alone is made at once.
		if found, err := c.Do(t.Context(), 1, 2); err != nil || !slices.Equal(found, []int{1}) {
			t.Errorf("%v, %v", found, err)
		}
		// Those that come within a moment are one, as far as they have room; each learns of its own.
		var all sync.WaitGroup
		for _, items := range [][]int{{3}, {5, 6}, {8}, {7, 9}} {
			all.Go(func() {
				found, err := c.Do(t.Context(), items...)
				if want := slices.DeleteFunc(slices.Clone(items), func(n int) bool { return n%2 == 0 }); err != nil ||
					!slices.Equal(found, want) {
					t.Errorf("of %v it finds %v, %v", items, found, err)
				}
			})
			synctest.Wait() // in this order
		}
		all.Wait()
		// Later there is nothing to wait for.
		time.Sleep(time.Second)
		if _, err := c.Do(t.Context(), 11); err != nil {
			t.Error(err)
		}
		const moment = 50 * time.Millisecond
		got := made()
		slices.SortFunc(got, func(a, b call) int { return a.items[0] - b.items[0] })
		want := []call{{0, []int{1, 2}}, {moment, []int{3, 5, 6, 8}}, {moment, []int{7, 9}},
			{moment + time.Second, []int{11}}}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("the calls are %v", got)
		}
	})
}

func TestACallerThatLeavesTakesNobodyWithIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, made := recorded(t)
		_, _ = c.Do(t.Context(), 1)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := c.Do(ctx, 3); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
		all.Go(func() {
			if found, err := c.Do(t.Context(), 5); err != nil || !slices.Equal(found, []int{5}) {
				t.Errorf("%v, %v", found, err)
			}
		})
		all.Wait()
		if got := made(); len(got) != 2 {
			t.Errorf("the calls are %v", got)
		}
		// An error is that of everyone whose items were in the call.
		for _, n := range []int{0, 7} {
			all.Go(func() {
				if _, err := c.Do(t.Context(), n); err == nil {
					t.Errorf("%d has no error", n)
				}
			})
		}
		all.Wait()
	})
}
