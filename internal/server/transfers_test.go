package server

import (
	"fmt"
	"testing"

	"github.com/ringrift/ringlog/api"
)

// Every node answers the same of transfers and copies, in pages, and as the document says.
func TestTransfersAndCopiesOnEveryNode(t *testing.T) {
	t.Parallel()
	sites := newSites(t, 3, nil)
	s := sites[0]
	say := func(kind, payload string) {
		s.ok("POST", "/v1/events", fmt.Sprintf(`{"type":%q,"payload":%s}`, kind, payload))
	}
	say("SYNC_REQUEST", `{"sync_id":"s1","dataset":"games/a b.db","targets":["gpu-7","gpu-8"],"source_node":"nas"}`)
	say("DATA_SYNC_STARTED", `{"sync_id":"s1","host":"gpu-7"}`)
	say("SYNC_STALLED", `{"sync_id":"s1","host":"gpu-7","reason":"slow"}`)
	say("DATA_SYNC_COMPLETED", `{"sync_id":"s1","host":"gpu-7","bytes":5,"files":1,"version":2,"verified":true}`)
	say("DATA_SYNC_FAILED", `{"sync_id":"s1","host":"gpu-7","error":"late"}`)
	say("DATA_SYNC_FAILED", `{"sync_id":"s1","host":"gpu-8","error":"full"}`)
	say("SYNC_RETRY_REQUESTED", `{"sync_id":"s1","host":"gpu-8"}`)
	say("SYNC_RETRY_REQUESTED", `{}`)
	say("DATABASE_CREATED", `{"db_path":"games/a b.db","node_id":"gpu-9"}`)
	say("NODE_TERMINATED", `{"node_id":"gpu-9"}`)
	d := readDocument(t, s)
	for _, one := range sites {
		ask := func(path, query string, into any) {
			a := one.ok("GET", path+"?consistency=linearizable"+query, "")
			a.decode(t, into)
			route := map[byte]string{'t': "/v1/transfers", 'w': "/v1/where"}[path[4]]
			if route == "/v1/where" && len(path) > len(route) {
				route += "/{name}"
			}
			d.check(t, path, d.Paths[route]["get"], a)
		}
		var page, next api.TransferPage
		ask("/v1/transfers", "&limit=1", &page)
		ask("/v1/transfers", "&limit=1&after="+page.Next, &next)
		if len(page.Transfers) != 1 || len(next.Transfers) != 1 || next.Next != "" {
			t.Fatalf("%+v, then %+v", page, next)
		}
		if x := page.Transfers[0]; x.Host != "gpu-7" || x.State != "completed" || x.Bytes != 5 || x.Checked != "verified" ||
			x.Contradictions != 1 || x.Error != "slow" || x.Overdue {
			t.Errorf("%+v", x)
		}
		if x := next.Transfers[0]; x.Host != "gpu-8" || x.State != "requested" || x.Retries != 1 || x.Due.IsZero() {
			t.Errorf("%+v", x)
		}
		if page.Totals.Events != 10 || page.Totals.Unnamed != 1 || page.Incomplete != "" || page.Offset == 0 {
			t.Errorf("%+v", page)
		}
		ask("/v1/transfers", "&state=requested&overdue=true&host=gpu-8", &page)
		if len(page.Transfers) != 0 {
			t.Errorf("overdue: %+v", page)
		}
		var copies api.CopyPage
		ask("/v1/where/games%2Fa%20b.db", "", &copies)
		if len(copies.Copies) != 2 || copies.Copies[0].Host != "gpu-7" || copies.Copies[0].Version != "2" ||
			copies.Copies[0].HostGone || !copies.Copies[1].HostGone {
			t.Errorf("%+v", copies)
		}
		ask("/v1/where", "&host=gpu-7", &copies)
		if len(copies.Copies) != 1 || copies.Copies[0].Name != "games/a b.db" {
			t.Errorf("%+v", copies)
		}
	}
	for _, path := range []string{"/v1/transfers?state=done", "/v1/transfers?overdue=maybe", "/v1/transfers?limit=-1",
		"/v1/transfers?colour=red", "/v1/where", "/v1/where?host=", "/v1/where/a?host=b"} {
		if a := s.do("GET", path, ""); a.status != 400 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	// What no page has given is a place like any other.
	for _, after := range []string{"%00", "%ff", "zzz", "..%2f.."} {
		s.ok("GET", "/v1/transfers?after="+after, "")
		s.ok("GET", "/v1/transfers?overdue=true&after="+after, "")
		s.ok("GET", "/v1/where/a?after="+after, "")
	}
}
