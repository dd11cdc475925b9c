package server

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/event"

	ringlogv1 "github.com/ringrift/ringlog/api/ringlog/v1"
	"github.com/ringrift/ringlog/api/ringlog/v1/ringlogv1connect"
)

// Every call that takes a filter warns about a misspelt type, and does not once the type is registered.
func TestEveryCallThatGivesAFilterWarnsAboutAMisspeltType(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	s.ok("PUT", "/v1/cursors/changed", "")
	filter := &ringlogv1.Filter{Types: []string{"TRAINNG_COMPLETED"}}
	cursors := ringlogv1connect.NewCursorServiceClient(s.http, s.url)
	groups := ringlogv1connect.NewGroupServiceClient(s.http, s.url)
	logs := ringlogv1connect.NewLogServiceClient(s.http, s.url)

	const body = `{"filter":{"types":["TRAINNG_COMPLETED"]}}`
	ways := map[string]func(name string) (http.Header, error){
		"cursor": func(name string) (http.Header, error) {
			return s.ok("PUT", "/v1/cursors/"+name, body).header, nil
		},
		"group": func(name string) (http.Header, error) {
			return s.ok("PUT", "/v1/groups/"+name, body).header, nil
		},
		"filter of a cursor": func(string) (http.Header, error) {
			return s.ok("PUT", "/v1/cursors/changed/filter", body).header, nil
		},
		"view": func(name string) (http.Header, error) {
			return s.ok("PUT", "/v1/views/"+strings.ReplaceAll(name, " ", "_"),
				`{"types":["TRAINNG_COMPLETED"],"fields":{"n":{"kind":"count"}}}`).header, nil
		},
		"client": func(name string) (http.Header, error) {
			list := `{"subscriptions":[{"name":"s","mode":"live",` + body[1:len(body)-1] + `}]}`
			return s.ok("PUT", "/v1/clients/"+name, list).header, nil
		},
		"read": func(string) (http.Header, error) {
			return s.ok("GET", "/v1/events?type=TRAINNG_COMPLETED", "").header, nil
		},
		"follow": func(string) (http.Header, error) {
			_, header := s.follow(t.Context(), "/v1/events?type=TRAINNG_COMPLETED&follow=true")
			return header, nil
		},
		"dead letters": func(string) (http.Header, error) {
			return s.ok("GET", "/v1/dlq?type=TRAINNG_COMPLETED", "").header, nil
		},
		"dead letters by error": func(string) (http.Header, error) {
			return s.ok("GET", "/v1/dlq/errors?type=TRAINNG_COMPLETED", "").header, nil
		},
		"redrive": func(string) (http.Header, error) {
			return s.ok("POST", "/v1/dlq/redrive", `{"type":"TRAINNG_COMPLETED"}`).header, nil
		},
		"purge": func(string) (http.Header, error) {
			return s.ok("POST", "/v1/dlq/purge", `{"type":"TRAINNG_COMPLETED"}`).header, nil
		},
		"cursor over Connect": func(name string) (http.Header, error) {
			resp, err := cursors.CreateCursor(t.Context(),
				connect.NewRequest(&ringlogv1.CreateCursorRequest{Name: name, Filter: filter}))
			return resp.Header(), err
		},
		"group over Connect": func(name string) (http.Header, error) {
			resp, err := groups.CreateGroup(t.Context(),
				connect.NewRequest(&ringlogv1.CreateGroupRequest{Name: name, Filter: filter}))
			return resp.Header(), err
		},
		"read over Connect": func(string) (http.Header, error) {
			in, err := logs.Tail(t.Context(), connect.NewRequest(&ringlogv1.TailRequest{Filter: filter}))
			if err != nil {
				return nil, err
			}
			for in.Receive() {
				continue
			}
			return in.ResponseHeader(), in.Close()
		},
	}
	for way, give := range ways {
		header, err := give("before " + way)
		if err != nil {
			t.Fatalf("%s: %v", way, err)
		}
		var list []event.Warning
		if err := json.Unmarshal([]byte(header.Get(api.WarningsHeader)), &list); err != nil || len(list) != 1 ||
			list[0].Reason != event.WarningUnknownType || list[0].Field != "types[0]" ||
			!strings.Contains(list[0].Message, "nearest known types: TRAINING_COMPLETED") {
			t.Errorf("%s: %+v, %v", way, list, err)
		}
	}
	// A body shows the same as the header.
	var made api.Cursor
	s.ok("PUT", "/v1/cursors/body", body).decode(t, &made)
	if len(made.Warnings) != 1 {
		t.Errorf("the answer has %+v", made.Warnings)
	}

	s.ok("POST", "/v1/catalogue", `[{"name":"TRAINNG_COMPLETED","category":"training"}]`)
	for way, give := range ways {
		header, err := give("after " + way)
		if got := header.Get(api.WarningsHeader); err != nil || got != "" {
			t.Errorf("%s, of a registered type: %s, %v", way, got, err)
		}
	}
}

// A token that a node does not ask for is warned about, beside what else the call is warned about.
func TestATokenThatProtectsNothingIsWarnedAbout(t *testing.T) {
	t.Parallel()
	s := newSite(t, nil)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/events?type=TRAINNG_COMPLETED", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer secret")
	resp, err := s.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var list []event.Warning
	err = json.Unmarshal([]byte(resp.Header.Get(api.WarningsHeader)), &list)
	if err != nil || len(list) != 2 || list[0].Reason != api.ReasonTokenUnused || list[1].Field != "types[0]" {
		t.Errorf("%+v, %v", list, err)
	}
	if h := s.ok("GET", "/v1/settings", "").header.Get(api.WarningsHeader); h != "" {
		t.Errorf("without a token: %s", h)
	}
}
