package human

import (
	"testing"
	"time"
)

func TestADurationHasAsManyDigitsAsOneCompares(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0:                          "0s",
		1234 * time.Nanosecond:     "1µs",
		177*time.Millisecond + 400: "177ms",
		999*time.Millisecond + 600*time.Microsecond: "1s",
		5234 * time.Millisecond:                     "5.2s",
		-5234 * time.Millisecond:                    "-5.2s",
		59*time.Second + 960*time.Millisecond:       "1m",
		89*time.Second + 100*time.Millisecond:       "1m29s",
		10 * time.Minute:                            "10m",
		time.Hour:                                   "1h",
		time.Hour + time.Second:                     "1h0m1s",
		47*time.Hour + 59*time.Minute:               "47h59m",
		48 * time.Hour:                              "2d",
		49*time.Hour + 10*time.Minute:               "2d1h",
		168 * time.Hour:                             "7d",
	} {
		if got := Short(d); got != want {
			t.Errorf("%d is %q, not %q", d, got, want)
		}
	}
}

func TestADurationOfASettingIsNotRounded(t *testing.T) {
	for text, want := range map[string]string{
		"0":           "0",
		"0s":          "0s",
		"60s":         "1m",
		"90s":         "1m30s",
		"1.25s":       "1.25s",
		"24h0m0s":     "24h",
		"72h":         "72h",
		"49h0m0s":     "49h",
		"876000h0m0s": "876000h",
		"true":        "true",
		"10000":       "10000",
		"":            "",
	} {
		if got := ExactText(text); got != want {
			t.Errorf("%s is %q, not %q", text, got, want)
		}
	}
}

func TestACountAgreesWithItsNoun(t *testing.T) {
	for _, test := range []struct{ got, want string }{
		{Count(0, "event"), "0 events"},
		{Count(1, "event"), "1 event"},
		{Count(uint64(2), "event"), "2 events"},
		{Count(1, "entry", "entries"), "1 entry"},
		{Count(3, "entry", "entries"), "3 entries"},
	} {
		if test.got != test.want {
			t.Errorf("%q, not %q", test.got, test.want)
		}
	}
}
