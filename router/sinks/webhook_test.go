package sinks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringrift/ringlog/router/sinks"
)

func webhook(t *testing.T, handler http.HandlerFunc, change ...func(*sinks.WebhookOptions)) *sinks.Webhook {
	t.Helper()
	server := httptest.NewServer(handler)
	o := sinks.WebhookOptions{URL: server.URL + "/hook", Group: "trainers", AllowLocal: true}
	for _, f := range change {
		f(&o)
	}
	w, err := sinks.NewWebhook(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.Close()
		server.Close()
	})
	return w
}

// The receiver gets the event as the log shows it, what identifies it, and a signature.
func TestAWebhookIsPosted(t *testing.T) {
	var got *http.Request
	var body []byte
	w := webhook(t, func(rw http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		rw.WriteHeader(http.StatusAccepted)
	}, func(o *sinks.WebhookOptions) {
		o.Secret = []byte("s3cret")
		o.Headers = http.Header{"x-team": {"training"}, "User-Agent": {"mine"}}
	})
	d := delivery()
	if err := w.Handle(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"Content-Type":     "application/json",
		"Ringlog-Offset":   "42",
		"Ringlog-Type":     "TRAINING_COMPLETED",
		"Ringlog-Delivery": "2",
		"Ringlog-Group":    "trainers",
		"Idempotency-Key":  "42-" + d.Hash().String()[:16],
		"Traceparent":      d.Trace.String(),
		"Webhook-Id":       "42-" + d.Hash().String()[:16],
		"X-Team":           "training",
		"User-Agent":       "mine",
	} {
		if v := got.Header.Get(name); v != want {
			t.Errorf("%s: %q", name, v)
		}
	}
	at, err := strconv.ParseInt(got.Header.Get("Webhook-Timestamp"), 10, 64)
	if signed := time.Unix(at, 0); err != nil || time.Since(signed).Abs() > time.Hour ||
		got.Header.Get("Webhook-Signature") != sinks.Signature([]byte("s3cret"), got.Header.Get("Webhook-Id"), signed, body) {
		t.Errorf("%v", got.Header)
	}
	var ev struct {
		Type     string         `json:"type"`
		Offset   uint64         `json:"offset"`
		Payload  map[string]any `json:"payload"`
		Delivery uint64         `json:"delivery"`
	}
	if err := json.Unmarshal(body, &ev); err != nil || got.Method != http.MethodPost || got.URL.Path != "/hook" ||
		ev.Type != "TRAINING_COMPLETED" || ev.Offset != 42 || ev.Payload["n"] != 7.0 || ev.Delivery != 2 {
		t.Errorf("%s %s %+v %v", got.Method, got.URL, ev, err)
	}
}

// The signature is the one of the libraries of Standard Webhooks, whose tests have this secret
// and message. It is bound to the message's id and time.
func TestSignature(t *testing.T) {
	secret, err := sinks.ParseSecret([]byte("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n"))
	if err != nil {
		t.Fatal(err)
	}
	const id, body = "msg_p5jXN8AQM9LWM0D4loKWxJek", `{"test": 2432232314}`
	at := time.Unix(1614265330, 0)
	const want = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
	if got := sinks.Signature(secret, id, at, []byte(body)); got != want {
		t.Error(got)
	}
	for what, got := range map[string]string{
		"another time": sinks.Signature(secret, id, at.Add(time.Second), []byte(body)),
		"another id":   sinks.Signature(secret, id+"x", at, []byte(body)),
	} {
		if got == want {
			t.Errorf("%s has the same signature", what)
		}
	}
	if plain, err := sinks.ParseSecret([]byte(" s3cret \n")); err != nil || string(plain) != "s3cret" {
		t.Errorf("%q %v", plain, err)
	}
	for _, bad := range []string{"", " \n", "whsec_", "whsec_no base64"} {
		if secret, err := sinks.ParseSecret([]byte(bad)); err == nil || strings.Contains(err.Error(), "no base64") {
			t.Errorf("%q: %q %v", bad, secret, err)
		}
	}
}

// What an answer means: success, another time, never, and whose fault it is.
func TestWhatAnAnswerMeans(t *testing.T) {
	soon := time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	for _, c := range []struct {
		code    int
		after   string
		dead    bool
		event   bool
		waits   bool
		success bool
	}{
		{code: 200, success: true}, {code: 204, success: true},
		{code: 301}, {code: 307},
		{code: 400, dead: true, event: true}, {code: 413, dead: true, event: true}, {code: 422, dead: true, event: true},
		{code: 401, dead: true}, {code: 403, dead: true}, {code: 404, dead: true}, {code: 410, dead: true},
		{code: 408}, {code: 425}, {code: 429}, {code: 500}, {code: 502}, {code: 503},
		{code: 429, after: "7", waits: true}, {code: 503, after: soon, waits: true}, {code: 500, after: "7"},
		{code: 429, after: "soon"}, {code: 429, after: "-7"},
	} {
		t.Run(fmt.Sprint(c.code, " ", c.after), func(t *testing.T) {
			calls := 0
			w := webhook(t, func(rw http.ResponseWriter, r *http.Request) {
				calls++
				rw.Header().Set("Location", "/elsewhere")
				if c.after != "" {
					rw.Header().Set("Retry-After", c.after)
				}
				rw.WriteHeader(c.code)
				if c.code != 204 {
					_, _ = io.WriteString(rw, "the reason"+strings.Repeat(".", 100_000))
				}
			})
			err := w.Handle(t.Context(), delivery())
			if c.success {
				if err != nil {
					t.Error(err)
				}
				return
			}
			f, ok := errors.AsType[*sinks.Error](err)
			if !ok || f.Dead != c.dead || f.Event != c.event || (f.After > 0) != c.waits || f.After > time.Hour {
				t.Errorf("%+v", f)
			}
			if text := err.Error(); !strings.Contains(text, fmt.Sprint(c.code)) || !strings.Contains(text, "the reason") ||
				len(text) > 1200 {
				t.Errorf("%.300s", text)
			}
			if calls != 1 {
				t.Errorf("%d calls: a redirect was followed", calls)
			}
		})
	}
}

// A receiver that takes the request and says nothing is cut off, and one that has said 200
// has handled it, whatever comes of the rest. Nobody there is a failure like others. No
// error has the password of the URL.
func TestAWebhookThatHangs(t *testing.T) {
	arrived := make(chan struct{})
	withPassword := func(o *sinks.WebhookOptions) {
		o.URL = strings.Replace(o.URL, "http://", "http://user:pass@", 1)
	}
	hangs := webhook(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(arrived)
		<-r.Context().Done()
	}, withPassword)
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-arrived
		cancel(sinks.ErrTimeout)
	}()
	if err := hangs.Handle(ctx, delivery()); err == nil || strings.Contains(err.Error(), "pass@") ||
		!strings.Contains(err.Error(), "user:xxxxx@") {
		t.Errorf("%v", err)
	}
	half := webhook(t, func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, "half")
		rw.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	})
	if err := half.Handle(t.Context(), delivery()); err != nil {
		t.Errorf("%v", err)
	}
	nobody, err := sinks.NewWebhook(sinks.WebhookOptions{URL: "http://user:pass@127.0.0.1:1/", AllowLocal: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := nobody.Handle(t.Context(), delivery()); err == nil || strings.Contains(err.Error(), "pass") {
		t.Errorf("%v", err)
	}
}

// A webhook that answers 500 and then 200 has handled its event, at the second attempt of
// the same delivery and under the same key.
func TestAWebhookRecovers(t *testing.T) {
	var calls atomic.Int32
	keys := make(chan string, 2)
	w := webhook(t, func(rw http.ResponseWriter, r *http.Request) {
		keys <- r.Header.Get("Idempotency-Key") + " " + r.Header.Get("Ringlog-Delivery")
		if calls.Add(1) == 1 {
			rw.WriteHeader(http.StatusInternalServerError)
		}
	})
	g := newMemGroup(progress("", 1))
	sum := react(t.Context(), t, g, sinks.Options{Sink: w, Retries: 1, Backoff: time.Millisecond, Settled: g.settled})
	if first, second := <-keys, <-keys; sum.Handled != 1 || sum.Retried != 1 || first != second {
		t.Errorf("%+v %q %q", sum, first, second)
	}
}

// Errors leave out the URL and the values of headers, which may hold secrets.
func TestWebhookOptions(t *testing.T) {
	for name, o := range map[string]sinks.WebhookOptions{
		"no URL": {}, "no scheme": {URL: "host/path"}, "another scheme": {URL: "ftp://host/"}, "no host": {URL: "http:///x"},
		"no such port":   {URL: "http://user:hidden@h:port/?key=hidden"},
		"a password":     {URL: "gopher://user:hidden@h/?key=hidden"},
		"a proxy":        {URL: "http://h/", Proxy: &url.URL{Scheme: "ftp", Host: "hidden"}},
		"a header name":  {URL: "http://h/", Headers: http.Header{"a b": {"hidden"}}},
		"a header value": {URL: "http://h/", Headers: http.Header{"Authorization": {"Bearer hidden\r\nb: 2"}}},
	} {
		if _, err := sinks.NewWebhook(o); err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
