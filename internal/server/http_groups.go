package server

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/group"
	"github.com/ringrift/ringlog/log"
)

func (s *Server) getGroups(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string][]cursorView{"groups": s.ops.listGroups()})
}

func (s *Server) getGroup(w http.ResponseWriter, r *http.Request) error {
	return s.answerCursor(w, r, func() (cursorView, error) { return s.ops.group(r.PathValue("name")) })
}

func (s *Server) deleteGroup(w http.ResponseWriter, r *http.Request) error {
	return s.answerCursor(w, r, func() (cursorView, error) { return s.ops.deleteGroup(r.Context(), r.PathValue("name")) })
}

// groupBody is what a group is made with.
type groupBody struct {
	cursorBody
	Group struct {
		AckWait    string        `json:"ack_wait"`
		AckWaitNS  time.Duration `json:"ack_wait_ns"`
		MaxDeliver uint64        `json:"max_deliver"`
		MaxPending uint64        `json:"max_pending"`
	} `json:"group"`
}

func (b *groupBody) policy() (frame.GroupPolicy, error) {
	out := frame.GroupPolicy{AckWait: b.Group.AckWaitNS, MaxDeliver: b.Group.MaxDeliver, MaxPending: b.Group.MaxPending}
	if b.Group.AckWait != "" {
		wait, err := api.ParseAge("group.ack_wait", b.Group.AckWait)
		if err != nil {
			return out, err
		}
		out.AckWait = wait
	}
	if out.AckWait < 0 {
		return out, badParam("group.ack_wait_ns", out.AckWait.String(), "zero or more")
	}
	return out, nil
}

func (s *Server) putGroup(w http.ResponseWriter, r *http.Request) error {
	var body groupBody
	if err := s.readJSON(r, &body, optionalBody); err != nil {
		return err
	}
	spec, err := body.spec(r.PathValue("name"))
	if err != nil {
		return err
	}
	group, err := body.policy()
	if err != nil {
		return err
	}
	return s.answerCursor(w, r, func() (cursorView, error) { return s.ops.createGroup(r.Context(), groupSpec{spec, group}) })
}

func (s *Server) getGroupMembers(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	list, err := s.ops.sessions(r.PathValue("name"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, map[string][]memberSession{"members": list})
}

// exchangeBody is what a member says.
type exchangeBody struct {
	Member   string        `json:"member"`
	Session  uint64        `json:"session"`
	Holding  []frame.Range `json:"holding"`
	Acks     []frame.Range `json:"acks"`
	Nacks    []nackBody    `json:"nacks"`
	Progress []frame.Range `json:"progress"`
	Want     uint64        `json:"want"`
	WaitMs   uint64        `json:"wait_ms"`
	Ahead    bool          `json:"ahead"`
	Leave    bool          `json:"leave"`
}

type nackBody struct {
	Offset   uint64 `json:"offset"`
	DelayMs  uint64 `json:"delay_ms"`
	Error    string `json:"error"`
	Dead     bool   `json:"dead"`
	Handler  string `json:"handler"`
	Released bool   `json:"released"`
}

// millis is a number of milliseconds as a time, and of one that is far too large the
// largest that is told apart from those that are not.
func millis(n uint64) time.Duration {
	const most = uint64(1000 * time.Hour / time.Millisecond)
	return time.Duration(min(n, most)) * time.Millisecond
}

func (b *exchangeBody) request(name string) exchangeRequest {
	r := exchangeRequest{group: name, member: b.Member, session: b.Session, holding: b.Holding, acks: b.Acks, progress: b.Progress,
		want: int(min(b.Want, maxWant+1)), wait: millis(b.WaitMs), ahead: b.Ahead, leave: b.Leave}
	for _, n := range b.Nacks {
		r.nacks = append(r.nacks, group.Nack{Offset: n.Offset, Delay: millis(n.DelayMs), Error: n.Error, Handler: n.Handler, Dead: n.Dead, Released: n.Released})
	}
	return r
}

func (s *Server) postExchange(w http.ResponseWriter, r *http.Request) error {
	var body exchangeBody
	if err := s.readJSONUpTo(r, &body, requiredBody, maxExchangeBody); err != nil {
		return err
	}
	out, err := s.ops.exchange(r.Context(), body.request(r.PathValue("name")))
	if err != nil {
		return err
	}
	b, err := appendExchanged(nil, &out)
	if err != nil {
		return err
	}
	s.metrics.delivered(len(out.events))
	return writeBytes(w, http.StatusOK, contentJSON, b)
}

// appendExchanged writes the answer: each event as it is read elsewhere, and which
// delivery it is.
func appendExchanged(b []byte, x *exchanged) ([]byte, error) {
	gaps := []*log.Gap{}
	if x.gap != nil {
		gaps = append(gaps, x.gap)
	}
	rest, err := json.Marshal(struct {
		Revoked   []frame.Range `json:"revoked"`
		Refused   []frame.Range `json:"refused"`
		Gaps      []*log.Gap    `json:"gaps"`
		AckWaitMs int64         `json:"ack_wait_ms"`
		SessionMs int64         `json:"session_timeout_ms"`
		Committed uint64        `json:"committed"`
		Last      uint64        `json:"last_offset"`
	}{append([]frame.Range{}, x.revoked...), append([]frame.Range{}, x.refused...), gaps, x.ackWait.Milliseconds(), x.silence.Milliseconds(), x.committed, x.last})
	if err != nil {
		return nil, err
	}
	b = strconv.AppendUint(append(b, `{"session":`...), x.session, 10)
	b = append(b, `,"events":[`...)
	for i := range x.events {
		if i > 0 {
			b = append(b, ',')
		}
		b = x.events[i].AppendJSON(b)
		b = strconv.AppendUint(append(b[:len(b)-1], `,"delivery":`...), x.counts[i], 10)
		b = append(b, '}')
	}
	b = append(append(b, "],"...), rest[1:]...)
	return append(b, '\n'), nil
}
