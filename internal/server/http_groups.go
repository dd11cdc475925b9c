package server

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/frame"
	"github.com/ringrift/ringlog/internal/group"
	"github.com/ringrift/ringlog/internal/group/engine"
	"github.com/ringrift/ringlog/internal/service"
	"github.com/ringrift/ringlog/log"
)

// groupHandlers answers what is asked of groups, whose members share a cursor.
type groupHandlers struct {
	groups  *service.Groups
	bodies  *bodyReader
	metrics *metrics
	spans   *spans
}

// getGroups answers GET /v1/groups with all groups, by name.
func (h *groupHandlers) getGroups(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	// A list without a limit: groups are few, as each has a coordinator.
	return writeJSON(w, http.StatusOK, map[string][]api.Cursor{"groups": h.groups.List(r.Context())})
}

// getGroup answers GET /v1/groups/{name} with the group's cursor; a cursor that is not a group is not found.
func (h *groupHandlers) getGroup(w http.ResponseWriter, r *http.Request) error {
	return answerCursor(w, r, func() (api.Cursor, error) { return h.groups.Get(r.Context(), r.PathValue("name")) })
}

// deleteGroup answers DELETE /v1/groups/{name}. It does not remove cursors that are not groups.
func (h *groupHandlers) deleteGroup(w http.ResponseWriter, r *http.Request) error {
	return answerCursor(w, r, func() (api.Cursor, error) { return h.groups.Delete(r.Context(), r.PathValue("name")) })
}

// groupBody is what a group is created with. ack_wait is a duration as people write it.
type groupBody struct {
	cursorBody
	Group struct {
		// Zero fields take the cluster's settings.
		AckWait    string `json:"ack_wait"`
		MaxDeliver uint64 `json:"max_deliver"`
		MaxPending uint64 `json:"max_pending"`
	} `json:"group"`
}

// policy returns the group's own part of a body.
func (b *groupBody) policy() (frame.GroupPolicy, error) {
	out := frame.GroupPolicy{MaxDeliver: b.Group.MaxDeliver, MaxPending: b.Group.MaxPending}
	if b.Group.AckWait != "" {
		wait, err := api.ParseAge("group.ack_wait", b.Group.AckWait)
		if err != nil {
			return out, err
		}
		out.AckWait = wait
	}
	return out, nil
}

// putGroup answers PUT /v1/groups/{name}: it creates a group, or answers with the one there is if it is the same.
func (h *groupHandlers) putGroup(w http.ResponseWriter, r *http.Request) error {
	var body groupBody
	if err := h.bodies.readJSON(r, &body, optionalBody); err != nil {
		return err
	}
	// The cursor's part of the body, then the group's own.
	spec, err := body.spec(r.PathValue("name"))
	if err != nil {
		return err
	}
	// What the group adds to its cursor.
	group, err := body.policy()
	if err != nil {
		return err
	}
	return answerCursor(w, r, func() (api.Cursor, error) {
		return h.groups.Create(r.Context(), service.GroupSpec{CursorSpec: spec, Group: group})
	})
}

// getGroupMembers answers GET /v1/groups/{name}/members with the members in the order in which they joined.
func (h *groupHandlers) getGroupMembers(w http.ResponseWriter, r *http.Request) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	// Only the leader knows its members.
	list, err := h.groups.Sessions(r.Context(), r.PathValue("name"))
	return answerJSON(w, map[string][]api.GroupMember{"members": list}, err)
}

// exchangeBody is what a member sends, the JSON form of an engine.Request.
type exchangeBody struct {
	Member  string `json:"member"`
	Session uint64 `json:"session"`
	// Holding is what a member that joins holds from an earlier session; Progress restarts the time of what it holds.
	Holding []frame.Range `json:"holding"`
	// Acks and Nacks settle deliveries of this session.
	Acks     []frame.Range `json:"acks"`
	Nacks    []nackBody    `json:"nacks"`
	Progress []frame.Range `json:"progress"`
	// Want is how many events to deliver at most, WaitMs how long to wait for them.
	Want   uint64 `json:"want"`
	WaitMs uint64 `json:"wait_ms"`
	// Ahead asks for events of keys whose earlier ones the member still holds. Leave ends the session.
	Ahead bool `json:"ahead"`
	Leave bool `json:"leave"`
	// Role and Fence are the lease of a role: the call is refused once that is over.
	Role  string `json:"role"`
	Fence uint64 `json:"fence"`
}

// nackBody is a delivery that a member did not handle, the JSON form of a group.Nack.
type nackBody struct {
	Offset uint64 `json:"offset"`
	// DelayMs is how long to wait before the event is delivered again.
	DelayMs uint64 `json:"delay_ms"`
	Error   string `json:"error"`
	// Dead makes a dead letter of it, Released gives it to another member without counting the delivery as failed.
	Dead     bool   `json:"dead"`
	Handler  string `json:"handler"`
	Released bool   `json:"released"`
	// Delivery is which delivery failed, as it came with the event; 0 is not known.
	Delivery uint64 `json:"delivery"`
}

// millis returns n milliseconds, at most 1000 hours: that does not overflow, and still exceeds every limit it is
// checked against.
func millis(n uint64) time.Duration {
	const most = uint64(1000 * time.Hour / time.Millisecond)
	// Cut before it is multiplied, which could overflow.
	return time.Duration(min(n, most)) * time.Millisecond
}

// request returns the exchange of a member of the group name. It caps Want at one more than is allowed, which fits
// an int and is still refused.
func (b *exchangeBody) request(name string) engine.Request {
	// Times are bounded by the operation, which refuses those that are too long.
	r := engine.Request{
		Group:    name,
		Member:   b.Member,
		Session:  b.Session,
		Holding:  b.Holding,
		Acks:     b.Acks,
		Progress: b.Progress,
		// One more than the limit still fits an int, and is refused by the operation.
		Want:  int(min(b.Want, service.MaxWant+1)),
		Wait:  millis(b.WaitMs),
		Ahead: b.Ahead,
		Leave: b.Leave,
		Lease: frame.RoleLease{Role: b.Role, Fence: b.Fence},
	}
	// The body has milliseconds where the operation has durations.
	for _, n := range b.Nacks {
		r.Nacks = append(r.Nacks, group.Nack{
			Offset:   n.Offset,
			Delivery: n.Delivery,
			Delay:    millis(n.DelayMs),
			Error:    n.Error,
			Handler:  n.Handler,
			Dead:     n.Dead,
			Released: n.Released,
		})
	}
	return r
}

// postExchange answers POST /v1/groups/{name}/exchange: it takes acks and nacks of a member and delivers events,
// for which it may wait.
func (h *groupHandlers) postExchange(w http.ResponseWriter, r *http.Request) error {
	var body exchangeBody
	if err := h.bodies.readJSON(r, &body, requiredBody); err != nil {
		return err
	}
	out, err := h.groups.Exchange(r.Context(), body.request(r.PathValue("name")))
	if err != nil {
		return err
	}
	began := time.Now()
	// The answer is complete before it is sent, so an error can still be answered.
	b, err := appendExchanged(nil, &out)
	if err != nil {
		return err
	}
	h.metrics.countDelivered(len(out.Events))
	err = writeBytes(w, http.StatusOK, contentJSON, b)
	h.spans.delivered(r.PathValue("name"), out.Events, began)
	return err
}

// appendExchanged appends the answer to an exchange. Each event has the form in which it is read elsewhere, with
// the number of its delivery added:
//
//	{"session":3,"events":[{"offset":7,…,"delivery":1}],"revoked":[],"refused":[],"gaps":[],
//	 "ack_wait_ms":30000,"session_timeout_ms":…,"committed":6,"last_offset":9}
func appendExchanged(b []byte, x *engine.Answer) ([]byte, error) {
	gaps := []*log.Gap{}
	if x.Gap != nil {
		gaps = append(gaps, x.Gap)
	}
	// All but the events is marshaled. Lists are copied so that an empty one is [] and not null.
	rest, err := json.Marshal(struct {
		Revoked   []frame.Range `json:"revoked"`
		Refused   []frame.Range `json:"refused"`
		Gaps      []*log.Gap    `json:"gaps"`
		AckWaitMs int64         `json:"ack_wait_ms"`
		SessionMs int64         `json:"session_timeout_ms"`
		Committed uint64        `json:"committed"`
		Last      uint64        `json:"last_offset"`
	}{
		append([]frame.Range{}, x.Revoked...),
		append([]frame.Range{}, x.Refused...),
		gaps,
		x.AckWait.Milliseconds(),
		x.Silence.Milliseconds(),
		x.Committed,
		x.Last,
	})
	if err != nil {
		return nil, err
	}
	// The events are appended by hand: they have an encoder of their own.
	b = strconv.AppendUint(append(b, `{"session":`...), x.Session, 10)
	b = append(b, `,"events":[`...)
	for i := range x.Events {
		// Events are separated by commas, as in any list.
		if i > 0 {
			b = append(b, ',')
		}
		// The event as a read has it.
		b = x.Events[i].AppendJSON(b)
		// The delivery takes the place of the brace that ends the event.
		b = strconv.AppendUint(append(b[:len(b)-1], `,"delivery":`...), x.Counts[i], 10)
		b = append(b, '}')
	}
	// The rest follows without its opening brace.
	b = append(append(b, "],"...), rest[1:]...)
	return append(b, '\n'), nil
}
