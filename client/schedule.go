package client

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"
)

// Scheduled is an event that is to be published at a time, or was.
type Scheduled = api.Scheduled

// PublishAt has an event published at a time, once, whatever becomes of this process. The time is the cluster's; one
// that has passed is now. The event is checked now, and deduplicated when it is published.
//
// id names the schedule, and "" is a random one. For producer.ttl, 15 minutes by default, after the event was published
// the same call with the same id changes nothing and returns what became of the event; with another event or time it is
// refused with the code exists.
func (c *Client) PublishAt(ctx context.Context, id string, at time.Time, ev event.Event) (Scheduled, error) {
	var out Scheduled
	ev, ended := c.tracedOne(ctx, ev)
	ask := api.Schedule{At: at, Event: ev}
	// A lost answer repeats the call, with the same id.
	err := c.Admin().Do(ctx, http.MethodPut, scheduledPath(cmp.Or(id, uuid.NewString())), nil, ask, &out)
	if ended != nil {
		ended(nil, err) // there is no result before its time
	}
	return out, err
}

// Scheduled goes through what is scheduled, and what was published within producer.ttl, by id, as the node that answers
// knows it. An error is the last that it yields.
func (a *Admin) Scheduled(ctx context.Context) iter.Seq2[Scheduled, error] {
	open := func(p *api.ScheduledPage) ([]Scheduled, string) { return p.Scheduled, p.Next }
	return eachOfPages(ctx, a, "/v1/scheduled", url.Values{}, open)
}

// Unschedule removes an event that was not published yet. The error's code is not_found if there is none, and conflict
// if it was published.
func (a *Admin) Unschedule(ctx context.Context, id string) (Scheduled, error) {
	var out Scheduled
	err := a.Do(ctx, http.MethodDelete, scheduledPath(id), nil, nil, &out)
	return out, err
}

// scheduledPath is the route of a schedule.
func scheduledPath(id string) string { return "/v1/scheduled/" + url.PathEscape(id) }
