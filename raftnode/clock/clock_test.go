package clock

import (
	"slices"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC)

// hands are two clocks that a test moves.
type hands struct{ Reading }

func (h *hands) read() Reading { return h.Reading }

// pass lets time go by on both clocks, the wall clock off by drift.
func (h *hands) pass(d, drift time.Duration) {
	h.Mono += d
	h.Wall = h.Wall.Add(d + drift)
}

func TestReplicatedTimeFollowsTheMonotonicClockAndSlewsTowardsTheWall(t *testing.T) {
	for _, test := range []struct {
		name  string
		known time.Time     // newest replicated time
		drift time.Duration // of the wall clock, during ten seconds
		want  time.Time
	}{
		{"an empty log takes the wall clock", time.Time{}, 0, noon.Add(10 * time.Second)},
		{"clocks that agree", noon, 0, noon.Add(10 * time.Second)},
		{"a wall clock a little ahead is reached", noon, 500 * time.Millisecond, noon.Add(10500 * time.Millisecond)},
		{"one far ahead is approached by a tenth", noon, time.Hour, noon.Add(11 * time.Second)},
		{"one that lags far slows time by a tenth", noon, -time.Hour, noon.Add(9 * time.Second)},
		{"replicated time an hour ahead is never turned back", noon.Add(time.Hour), 0, noon.Add(time.Hour + 9*time.Second)},
		{"replicated time that lags by a day does not jump", noon.Add(-24 * time.Hour), 0,
			noon.Add(-24*time.Hour + 11*time.Second)},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := &hands{Reading{Wall: noon}}
			c := New(h.read)
			c.Reset(test.known)
			h.pass(10*time.Second, test.drift)
			if got := c.Stamp(); !got.Equal(test.want) {
				t.Errorf("stamp is %v, want %v", got, test.want)
			}
		})
	}
}

func TestStampsNeverFall(t *testing.T) {
	h := &hands{Reading{Wall: noon}}
	c := New(h.read)
	last := c.Stamp()
	for i := range 1000 {
		h.pass(time.Millisecond, time.Duration(i%7-3)*time.Minute)
		if i%10 == 0 {
			c.Observe(last.Add(-time.Second)) // an own frame that comes back late
		}
		if got := c.Stamp(); got.Before(last) {
			t.Fatalf("after %v came %v", last, got)
		} else {
			last = got
		}
	}
	c.Observe(last.Add(time.Hour))
	if got := c.Stamp(); got.Before(last.Add(time.Hour)) {
		t.Errorf("a newer time from the log was not taken over: %v", got)
	}
}

func TestAStepNeedsTheClocksOfAMajorityOfAllVoters(t *testing.T) {
	const far = 5 * time.Second
	for _, test := range []struct {
		name   string
		clocks map[string]time.Duration // of the others, beside the own one
		voters int
		agreed []string
		ok     bool
	}{
		{"a lone voter", nil, 1, []string{"a"}, true},
		{"two of three", map[string]time.Duration{"c": time.Second, "b": far}, 3, []string{"a", "c"}, true},
		{"one of three answers", nil, 3, []string{"a"}, false},
		{"nobody agrees", map[string]time.Duration{"b": far, "c": -far}, 3, []string{"a"}, false},
		{"half is no majority", map[string]time.Duration{"b": 0, "c": far, "d": far}, 4, []string{"a", "b"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			now := Reading{Wall: noon, Mono: time.Hour}
			samples := map[string]Sample{}
			for id, offset := range test.clocks {
				samples[id] = NewSample(noon.Add(offset), now, now)
			}
			if agreed, ok := StepAgreed(now, "a", samples, test.voters); ok != test.ok || !slices.Equal(agreed, test.agreed) {
				t.Errorf("%v %v, want %v %v", agreed, ok, test.agreed, test.ok)
			}
		})
	}
}

func TestAClockAgreesAsLongAsNoneHasStepped(t *testing.T) {
	for _, test := range []struct {
		name   string
		offset time.Duration // of the other clock while the sample was taken
		took   time.Duration
		age    time.Duration
		step   time.Duration // of the own clock since
		want   bool
	}{
		{"equal clocks", 0, 0, time.Second, 0, true},
		{"an answer that took a while", 0, 900 * time.Millisecond, time.Second, 0, true},
		{"one that was just near enough, and took a while", 900 * time.Millisecond, 400 * time.Millisecond, time.Second,
			0, false},
		{"one that took too long to say anything", 0, 3 * time.Second, time.Second, 0, false},
		{"the own clock has stepped since", 0, 0, time.Second, time.Hour, false},
		{"it has stepped back", 0, 0, time.Second, -time.Hour, false},
		{"it has stepped to where the other's is", time.Hour, 0, time.Second, time.Hour, true},
		{"it was where the other's is", time.Hour, 0, time.Second, 0, false},
		{"the sample is old", 0, 0, time.Minute, 0, false},
	} {
		h := &hands{Reading{Wall: noon, Mono: time.Hour}}
		asked := h.read()
		h.pass(test.took/2, 0)
		wall := h.Wall.Add(test.offset)
		h.pass(test.took/2, 0)
		sample := NewSample(wall, asked, h.read())
		h.pass(test.age, test.step)
		if sample.agrees(h.read()) != test.want {
			t.Errorf("%s: agrees is %v, %v off", test.name, !test.want, sample.Offset(h.read()))
		}
	}
}

func TestOnlyTimeFarBehindAsksForAStep(t *testing.T) {
	for lag, want := range map[time.Duration]bool{
		900 * time.Millisecond:  false,
		1100 * time.Millisecond: true,
		-time.Hour:              false,
	} {
		c := New((&hands{Reading{Wall: noon}}).read)
		c.Reset(noon.Add(-lag))
		if c.Lags() != want {
			t.Errorf("lag of %v: %v", lag, !want)
		}
	}
}
