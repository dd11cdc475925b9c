package sinks

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringrift/ringlog/client"
)

// WebhookOptions say where to post. URL is required.
type WebhookOptions struct {
	URL     string      // http or https; it may hold a password, which no error shows
	Group   string      // what Ringlog-Group has
	Headers http.Header // beside those of the event
	// Secret signs what is posted, as Standard Webhooks has it; see ParseSecret. Empty signs
	// nothing.
	Secret      []byte
	Concurrency int // connections that are kept; 1
	// AllowLocal lets the receiver be this host, or another of its link. Without it their addresses are refused when they
	// are dialled, in whatever form and whatever name they have.
	AllowLocal bool
	// Proxy is what is dialled instead of the receiver, whose address is then the proxy's to judge. nil is none, whatever
	// the environment has.
	Proxy *url.URL
	// Client posts instead of a client of the webhook's own. AllowLocal, Proxy and Concurrency do not count with it.
	Client *http.Client
}

// Webhook posts each event, as GET /v1/events/{offset} shows it with its delivery, with the
// headers
//
//	Ringlog-Offset, Ringlog-Type, Ringlog-Delivery, Ringlog-Group, Idempotency-Key
//
// and if there is a secret with those of Standard Webhooks (standardwebhooks.com), for
// which receivers have libraries:
//
//	Webhook-Id         what Idempotency-Key has
//	Webhook-Timestamp  when this attempt was made, in Unix seconds
//	Webhook-Signature  see Signature
//
// An answer of 2xx is success. 408, 425, 429 and 5xx may be better another time, 429 and 503
// not before their Retry-After. Any other 4xx is final. A redirect is a failure and is not
// followed: the body could reach somebody it is not meant for.
type Webhook struct {
	o     WebhookOptions
	shown string // the URL without its password
}

// NewWebhook checks the options.
func NewWebhook(o WebhookOptions) (*Webhook, error) {
	// neither the URL nor a header's value is shown: both may hold secrets
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, errors.New("sinks: the webhook's URL is not one such as https://host/path")
	}
	if p := o.Proxy; p != nil && (p.Host == "" || (p.Scheme != "http" && p.Scheme != "https" && p.Scheme != "socks5")) {
		return nil, errors.New("sinks: the webhook's proxy is not one such as http://host:port")
	}
	if o.Client == nil && o.Proxy == nil && !o.AllowLocal && namesLocal(u) {
		return nil, fmt.Errorf("sinks: %w", &LocalError{u.Hostname()})
	}
	for name, values := range o.Headers {
		if !isToken(name) {
			return nil, fmt.Errorf("sinks: %q is not the name of a header", name)
		}
		if slices.ContainsFunc(values, hasControl) {
			return nil, fmt.Errorf("sinks: the value of the header %q has a control character", name)
		}
	}
	// The default client keeps a connection for each event in flight.
	if o.Client == nil {
		o.Client = &http.Client{Transport: transport(&o)}
	}
	// The caller's client is not changed.
	own := *o.Client
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	o.Client = &own
	return &Webhook{o, u.Redacted()}, nil
}

// hasControl reports a value that could end a header and begin another one.
func hasControl(value string) bool {
	return strings.ContainsFunc(value, func(r rune) bool { return (r < ' ' && r != '\t') || r == 0x7f })
}

// isToken reports a name that a header may have.
func isToken(name string) bool {
	const special = "!#$%&'*+-.^_`|~"
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune(special, r)
	})
}

// maxHeaders bounds the headers of an answer.
const maxHeaders = 64 << 10

// transport returns a transport that keeps a connection for each event at once, to a receiver that may be dialled.
func transport(o *WebhookOptions) *http.Transport {
	dialer := &net.Dialer{Timeout: 30 * time.Second}
	if !o.AllowLocal && o.Proxy == nil {
		dialer.Control = refuseLocal
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext, t.Proxy = dialer.DialContext, http.ProxyURL(o.Proxy)
	connections := cmp.Or(o.Concurrency, 1)
	t.MaxIdleConns, t.MaxIdleConnsPerHost, t.MaxResponseHeaderBytes = connections, connections, maxHeaders
	return t
}

// Close ends the connections that are kept.
func (w *Webhook) Close() { w.o.Client.CloseIdleConnections() }

// Handle implements Sink.
func (w *Webhook) Handle(ctx context.Context, d client.Delivery) error {
	body := bodyOf(&d)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.o.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	w.setHeaders(req, &d, body)
	resp, err := w.o.Client.Do(req)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err // without the URL and its password
		}
		return fmt.Errorf("post to %s: %w", w.shown, err)
	}
	defer resp.Body.Close()
	return w.judge(resp, time.Now())
}

// bodyOf is the event in JSON, with its delivery as the last field.
func bodyOf(d *client.Delivery) []byte {
	body := d.AppendJSON(nil)
	body = append(body[:len(body)-1], `,"delivery":`...)
	return append(strconv.AppendUint(body, d.Count, 10), '}')
}

// setHeaders describes the event in the headers, and signs the body if there is a secret.
func (w *Webhook) setHeaders(req *http.Request, d *client.Delivery, body []byte) {
	h := req.Header
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "ringlog")
	h.Set("Ringlog-Offset", strconv.FormatUint(d.Offset, 10))
	h.Set("Ringlog-Type", string(d.Type))
	h.Set("Ringlog-Delivery", strconv.FormatUint(d.Count, 10))
	h.Set("Ringlog-Group", w.o.Group)
	h.Set("Idempotency-Key", idempotencyKey(d))
	if d.Trace.Valid() {
		h.Set("Traceparent", d.Trace.String())
	}

	// The user's headers may replace those of the event, but not the signature.
	for name, values := range w.o.Headers {
		name = textproto.CanonicalMIMEHeaderKey(name)
		if name == "Host" {
			req.Host = values[0]
		}
		h[name] = values
	}
	if len(w.o.Secret) > 0 {
		id, at := idempotencyKey(d), time.Now()
		h.Set("Webhook-Id", id)
		h.Set("Webhook-Timestamp", strconv.FormatInt(at.Unix(), 10))
		h.Set("Webhook-Signature", Signature(w.o.Secret, id, at, body))
	}
}

// Signature is what Webhook-Signature has for a body: "v1," and the HMAC-SHA256 in base64 of
//
//	ID.TIMESTAMP.BODY
//
// so that nobody who has seen a request can send it again later, or under another id.
func Signature(secret []byte, id string, at time.Time, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	fmt.Fprintf(mac, "%s.%d.", id, at.Unix())
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// secretPrefix begins a secret in the form of Standard Webhooks.
const secretPrefix = "whsec_"

// ParseSecret reads a secret: whsec_ and base64, or any other text, whose bytes are the secret.
// White space around it is left out.
func ParseSecret(text []byte) ([]byte, error) {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return nil, errors.New("it is empty")
	}
	// Only the prefix says that the text is base64: any other text may look like it, too.
	encoded, standard := bytes.CutPrefix(text, []byte(secretPrefix))
	if !standard {
		return text, nil
	}
	secret, err := base64.StdEncoding.AppendDecode(nil, encoded)
	if err != nil || len(secret) == 0 {
		return nil, errors.New("what follows " + secretPrefix + " is not base64")
	}
	return secret, nil
}

// How much of an answer's body is shown, and how much is read so that the connection can be
// used again.
const (
	maxShown = 1 << 10
	maxRead  = 64 << 10
)

// judge makes an answer an error.
func (w *Webhook) judge(resp *http.Response, now time.Time) error {
	if resp.StatusCode/100 == 2 {
		_, _ = io.CopyN(io.Discard, resp.Body, maxRead) // it is handled, whatever comes of the rest
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxShown)) // after an error with as much as came
	text := strings.TrimSpace(strings.ToValidUTF8(string(body), "\uFFFD"))
	err := fmt.Errorf("post to %s: %s", w.shown, resp.Status)
	if text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	// What the status says about another attempt, about this event, and about the receiver.
	f := &Error{Err: err}
	switch code := resp.StatusCode; code {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		f.After = retryAfter(resp.Header.Get("Retry-After"), now)
	case http.StatusRequestTimeout, http.StatusTooEarly:
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusProxyAuthRequired, http.StatusGone:
		f.Dead = true // and every other event would meet the same: the breaker counts it
	default:
		f.Dead = code/100 == 4
		f.Event = f.Dead
	}
	return f
}

// retryAfter reads the header: seconds, or a time.
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(strings.TrimSpace(value), 10, 32); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
