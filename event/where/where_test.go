package where_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/event/where"
)

func TestConditionsChoose(t *testing.T) {
	payload := `{"epoch": 7, "loss": 0.25, "big": 1e300, "tags": ["a", "b"], "host": {"name": "h1"}}`
	ev := event.New("training.completed", []byte(payload))
	ev.Type, ev.Source, ev.Key, ev.Offset = event.TrainingCompleted, "trainer-3", "hex8", 12
	ev.AppendedAt = time.Date(2026, 1, 5, 10, 0, 0, 0, time.UTC)
	costly := "a+b+c+d+e+f > 0"
	for _, variable := range "fedcba" {
		costly = fmt.Sprintf("[1,2,3,4,5,6,7,8].all(%c, %s)", variable, costly)
	}
	for expression, want := range map[string]string{
		`payload.epoch > 3`:                                             "true",
		`payload.epoch + 1 == 8 && payload.loss < 1`:                    "true",
		`payload.epoch == 7.0`:                                          "true",
		`payload.big > 5`:                                               "true",
		`"b" in payload.tags && payload.tags[0] == "a"`:                 "true",
		`payload.host.name.startsWith("h")`:                             "true",
		`has(payload.missing)`:                                          "false",
		`payload.missing > 3`:                                           "false, no such key: missing",
		`payload.host > 3`:                                              "false, no such overload",
		`type == "TRAINING_COMPLETED" && value == "training_completed"`: "true",
		`source.matches("^trainer-[0-9]$") && key == "hex8"`:            "true",
		`offset == 12 && term == 0 && correlation_id == ""`:             "true",
		`appended_at > timestamp("2026-01-01T00:00:00Z")`:               "true",
		`payload.tags`:                                                  "false, it gives list",

		costly: "false, operation cancelled: actual cost limit exceeded",
	} {
		w, err := where.Compile(expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		met, err := w.Match(&ev)
		got := map[bool]string{true: "true", false: "false"}[met]
		if err != nil {
			got += ", " + err.Error()
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", expression, got, want)
		}
	}
}

func TestErrorsNameThePosition(t *testing.T) {
	for _, c := range []struct {
		expression   string
		line, column int
		message      string
	}{
		{"payload.epoch >", 1, 16, "mismatched input"},
		{"payload.epoch > 3 &&\n  nobody == 4", 2, 3, "undeclared reference to 'nobody'"},
		{"source > 3", 1, 8, "no matching overload"},
		{"source + key", 1, 1, "it gives string, not bool"},
		{"", 1, 1, "mismatched input"},
		// An event would choose how much work it is.
		{"source.matches(payload.pattern)", 1, 23, "a pattern is a text in the expression"},
		{"type != '' &&\n matches(payload.text, '(a?){100}' + key)", 2, 36, "a pattern is a text in the expression"},
		{"[1].exists(x, key.matches(source))", 1, 27, "a pattern is a text in the expression"},
		{"key.matches('" + strings.Repeat("a", 257) + "')", 1, 13, "of up to 256 bytes"},
	} {
		_, err := where.Compile(c.expression)
		var at *where.Error
		if !errors.As(err, &at) || at.Line != c.line || at.Column != c.column || !strings.Contains(at.Message, c.message) {
			t.Errorf("%q: %v", c.expression, err)
			continue
		}
		if lines := strings.Split(err.Error(), "\n"); len(lines) != 3 || len(lines[2]) != len(" | ")+c.column {
			t.Errorf("the position is not marked: %q", err.Error())
		}
	}
}
