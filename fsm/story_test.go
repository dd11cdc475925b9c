package fsm

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ringrift/ringlog/election"
	"github.com/ringrift/ringlog/event"
	"github.com/ringrift/ringlog/internal/frame"
)

var update = flag.Bool("update", false, "write what happens in the stories into their files")

// The stories in testdata are transcripts: a line that begins with > is a command,
// what follows until the next one is what the machine answered.
func TestStories(t *testing.T) {
	files, err := filepath.Glob("testdata/*.story")
	if err != nil || len(files) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".story"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := (&narrator{node: newNode(t)}).narrate(string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got != string(text) {
				t.Errorf("the story goes otherwise now:\n%s", got)
			}
		})
	}
}

// narrator carries out a story's commands.
type narrator struct {
	*node
	leader string
	shown  uint64 // events up to here were printed
	first  uint64 // the first offset that was printed
}

func (s *narrator) narrate(story string) string {
	var out strings.Builder
	for line := range strings.Lines(story) {
		switch {
		case strings.HasPrefix(line, "#"), strings.TrimSpace(line) == "":
			out.WriteString(line)
		case strings.HasPrefix(line, "> "):
			out.WriteString(line)
			out.WriteString(s.line(strings.Fields(line[2:])))
		}
	}
	return out.String()
}

func (s *narrator) line(words []string) string {
	switch words[0] {
	case "leads": // n1 leads in the next term, cause, silence, how far its term start moves replicated time
		s.term++
		s.leader = words[1]
		start := frame.TermStart{ClusterID: "c1"}
		if len(words) > 2 {
			start.Cause = words[2]
		}
		if len(words) > 3 {
			start.Silence, _ = time.ParseDuration(words[3])
		}
		requests := []request{do(start)}
		if len(words) > 4 {
			requests = append(requests, s.request([]string{"step", words[4]}))
		}
		return s.entry(requests...)
	case "voters": // a raft configuration; a non-voter as -n4
		return s.configure(words[1:])
	case "restart": // with what is stored
		reload(s.t, s.m)
		return ""
	case "wait":
		d, _ := time.ParseDuration(words[1])
		s.at = s.at.Add(d)
		return ""
	case "explain":
		x, err := s.m.Explain(context.Background(), number64(words[1]))
		return show(x) + failed(err)
	case "letters":
		return tellLetters(s.m)
	case "shared": // what a group knows
		return tellGroup(s.m, words[1])
	case "clients":
		return tellClients(s.m)
	case "roles":
		return tellRoles(s.m)
	case "shares":
		return tellShares(s.m)
	case "flows": // those that are registered
		text := ""
		for _, f := range s.m.Catalogue().Flows() {
			if f.Status == event.StatusRegistered || f.RunBy != nil {
				text += show(f)
			}
		}
		return text
	case "reads": // what a cursor is given
		return s.reads(words[1])
	case "stats":
		stats := s.m.Stats()
		return fmt.Sprintf("  first %d last %d keys %d producers %d accepted %d suppressed %d refused %d\n",
			stats.First, stats.Last, stats.DedupKeys, stats.Producers, stats.Accepted, stats.Suppressed, stats.Refused)
	case "keys": // of dedup policies
		return fmt.Sprintf("  %d\n", s.m.Stats().PolicyKeys)
	case "due":
		return fmt.Sprintf("  %s\n", s.m.NextDeadline().Sub(epoch))
	case "plan":
		plan, err := s.m.PlanTrim(frame.Trim{Before: number64(words[1])})
		return show(plan) + failed(err)
	default:
		return s.entry(s.request(words))
	}
}

// emission is of the words after the first: name, generation, from, to.
func emission(words []string) frame.ViewEmission {
	return frame.ViewEmission{View: words[1], Generation: number64(words[2]), From: number64(words[3]),
		To: number64(words[4])}
}

// length is a duration.
func length(s string) time.Duration { d, _ := time.ParseDuration(s); return d }

// secret is the digest that a letter stands for.
func secret(s string) frame.SecretDigest { return frame.SecretDigest{s[0]} }

// orEmpty is a word, or of - none.
func orEmpty(s string) string {
	if s == "-" {
		return ""
	}
	return s
}

// listed is a list with commas between its parts.
func listed(s string) []string {
	if s == "-" {
		return nil
	}
	return strings.Split(s, ",")
}

// describeToken says what a token is.
func describeToken(t *Token) string {
	text := fmt.Sprintf("%s %s, roles %q, types %q, cursors %q, secret %c", t.Name, t.ID, t.Roles, t.Types, t.Cursors,
		t.Secret[0])
	if t.Expires != 0 {
		text += fmt.Sprintf(", expires %s", time.Unix(0, t.Expires).Sub(epoch))
	}
	if t.BeforeUntil != 0 {
		text += fmt.Sprintf(", %c until %s", t.Before[0], time.Unix(0, t.BeforeUntil).Sub(epoch))
	}
	return text
}

func number64(s string) uint64 { n, _ := strconv.ParseUint(s, 10, 64); return n }

func show(v any) string {
	text, _ := json.Marshal(v)
	return "  " + string(text) + "\n"
}

func failed(err error) string {
	if err == nil {
		return ""
	}
	return "  error: " + err.Error() + "\n"
}

func (s *narrator) request(words []string) request {
	switch words[0] {
	case "publish": // contents as numbers, with an id as 3=id, with a field beside n as 3/name
		return publish(contents(words[1:])...)
	case "produce": // producer sequence contents
		return produce(words[1], number64(words[2]), contents(words[3:])...)
	case "create":
		return do(frame.CursorCreate{Name: words[1], Policy: frame.CursorPolicy{HoldEvents: number64(words[2])}})
	case "open":
		return do(frame.CursorOpen{Name: words[1]})
	case "commit":
		return do(frame.CursorCommit{Name: words[1], Offset: number64(words[2]), Generation: number64(words[3])})
	case "seek": // name offset [seeker]
		c := frame.CursorSeek{Name: words[1], To: frame.Position{Kind: frame.AtOffset, Offset: number64(words[2])}}
		c.Seeker = strings.Join(words[3:], "")
		return do(c)
	case "remove":
		return do(frame.CursorDelete{Name: words[1]})
	case "set":
		return do(frame.SettingSet{Key: words[1], Value: words[2]})
	case "policy": // of TRAINING_COMPLETED: mode, window or -, fields
		window, _ := time.ParseDuration(words[2])
		return do(frame.DedupPolicySet{
			Type:   string(event.TrainingCompleted),
			Policy: event.DedupPolicy{Mode: event.DedupMode(words[1]), Window: window, Fields: words[3:]},
		})
	case "nopolicy":
		return do(frame.DedupPolicySet{Type: string(event.TrainingCompleted)})
	case "trim":
		return do(frame.Trim{Before: number64(words[1]), Force: len(words) > 2})
	case "intent":
		return do(frame.Intent{Target: words[1], Cause: words[2]})
	case "abort":
		return do(frame.IntentAbort{})
	case "member":
		level, _ := strconv.Atoi(words[2])
		return do(frame.MemberPut{Member: frame.Member{ID: words[1], FeatureLevel: uint32(level)}})
	case "dead": // cursor offset generation error
		return do(s.deadLetter(words[1], number64(words[2]), number64(words[3]), words[4]))
	case "group", "settle", "deadof":
		return s.groupRequest(words)
	case "redrive": // 1 2 3, or to cursor 1 2 3
		if words[1] == "to" {
			return do(frame.Redrive{To: words[2], Letters: numbers(words[3:])})
		}
		return do(frame.Redrive{Letters: numbers(words[1:])})
	case "purge":
		return do(frame.Purge{Letters: numbers(words[1:])})
	case "purgeold":
		age, _ := time.ParseDuration(words[1])
		return do(frame.Purge{OlderThan: age, Letters: numbers(words[2:])})
	case "keep": // cursor offset row error
		letter := s.deadLetter(words[1], number64(words[2]), 0, words[4])
		return do(frame.LetterKeep{Origin: [frame.OriginSize]byte{1, byte(number64(words[3]))}, From: "p1", Letter: letter})
	case "import": // contents, whose row is the same number
		return do(s.imports(words[1:]))
	case "online", "offline": // n2 1500, or n2 1500 raft
		ms, _ := strconv.ParseInt(words[2], 10, 64)
		return do(frame.VoterHealth{
			Voter:         words[1],
			Online:        words[0] == "online",
			LastContactMs: ms,
			Reason:        strings.Join(words[3:], ""),
		})
	case "vote", "novote": // n4 operator
		return do(frame.MemberVote{ID: words[1], Wanted: words[0] == "vote", Reason: words[2]})
	case "journals":
		return do(s.journals(words[1:]))
	case "claims": // of two leaders
		return do(frame.SplitBrain{Term: s.term, Leaders: words[1:]})
	case "trails": // n3 lags by 300
		return do(frame.CatchUp{
			Member:      words[1],
			AtRisk:      words[2] != "0",
			Trailing:    number64(words[2]),
			Left:        100,
			Rate:        5,
			LogRate:     30,
			TruncatedIn: 4 * time.Second,
		})
	case "client":
		return do(clientWords(words))
	case "acquire": // role holder ttl, and wait
		ttl, _ := time.ParseDuration(words[3])
		return do(frame.RoleAcquire{Role: words[1], Holder: words[2], Session: "s" + words[2], TTL: ttl,
			Wait: len(words) > 4})
	case "renew": // role fence
		return do(frame.RoleRenew{Leases: []frame.RoleLease{{Role: words[1], Fence: number64(words[2])}}})
	case "prolong": // role holder: the claim, held or waiting
		return do(frame.RoleRenewClaim{Role: words[1], Session: "s" + words[2]})
	case "release": // role holder
		return do(frame.RoleRelease{Role: words[1], Session: "s" + words[2]})
	case "revoke": // role fence
		return do(frame.RoleRelease{Role: words[1], Fence: number64(words[2])})
	case "under": // role fence contents
		r := publish(contents(words[3:])...)
		r.command = frame.Publish{Count: len(r.events), Lease: frame.RoleLease{Role: words[1], Fence: number64(words[2])}}
		return r
	case "produceunder": // producer sequence role fence contents
		r := publish(contents(words[5:])...)
		r.command = frame.Publish{Producer: words[1], Sequence: number64(words[2]), Count: len(r.events),
			Lease: frame.RoleLease{Role: words[3], Fence: number64(words[4])}}
		return r
	case "commitunder": // cursor offset generation role fence
		return do(frame.CursorCommit{Name: words[1], Offset: number64(words[2]), Generation: number64(words[3]),
			Lease: frame.RoleLease{Role: words[4], Fence: number64(words[5])}})
	case "schedule": // id content, to be published as long after the beginning as the last word says
		after, _ := time.ParseDuration(words[3])
		e := contents(words[2:3])[0]
		return do(frame.Schedule{ID: words[1], At: epoch.Add(after), NoDedup: e.NoDedup, Event: frame.EncodeCopy(&e)})
	case "unschedule": // id
		return do(frame.Unschedule{ID: words[1]})
	case "deliver": // id content
		r := publish(contents(words[2:])...)
		r.command = frame.Publish{Count: len(r.events), Scheduled: words[1]}
		return r
	case "view": // name declaration revision
		return do(frame.ViewDefine{Name: words[1], Declaration: words[2], Revision: number64(words[3])})
	case "noview": // name
		return do(frame.ViewRemove{Name: words[1]})
	case "emit": // name generation from to contents
		r := publish(contents(words[5:])...)
		r.command = frame.Publish{Count: len(r.events), Emission: emission(words)}
		return r
	case "skip": // name generation from to
		return do(frame.ViewSkip{ViewEmission: emission(words)})
	case "token": // name id secret roles types cursors ttl; commas part a list, and - is an empty one
		return do(frame.TokenCreate{Name: words[1], ID: words[2], Secret: secret(words[3]), Roles: listed(words[4]),
			Types: listed(words[5]), Cursors: listed(words[6]), TTL: length(words[7]), By: "root"})
	case "rotate": // name secret grace
		return do(frame.TokenRotate{Name: words[1], Secret: secret(words[2]), Grace: length(words[3])})
	case "notoken": // name
		return do(frame.TokenRevoke{Name: words[1]})
	case "act": // who action target detail, and the command that it is of; - is an empty text
		r := s.request(words[5:])
		r.command = frame.Act{By: orEmpty(words[1]), Action: words[2], Target: orEmpty(words[3]), Detail: orEmpty(words[4]),
			Of: r.command}
		return r
	case "acted": // who action target outcome reason, of an act that no entry does
		return do(frame.Act{By: words[1], Action: words[2], Target: words[3], Outcome: orEmpty(words[4]),
			Reason: orEmpty(words[5])})
	case "resource", "noresource", "allocate", "queue", "keepshare", "prolongshare", "free":
		return allocationRequest(words)
	case "flow": // as JSON, without blanks
		return do(frame.FlowPut{Flows: []byte(words[1])})
	case "noflow":
		return do(frame.FlowRemove{Name: words[1]})
	case "overdue": // run offset deadline; its cause was appended as long after the beginning as the last word says
		limit, _ := time.ParseDuration(words[3])
		after, _ := time.ParseDuration(words[4])
		return do(frame.ChainOverdue{
			CorrelationID: words[1],
			Flow:          "f",
			From:          "A",
			FromOffset:    number64(words[2]),
			Since:         epoch.Add(after),
			Missing:       "B",
			Deadline:      limit,
		})
	case "full", "released": // requests
		return do(frame.Pressure{Active: words[0] == "full", Requests: number64(words[1]), Bytes: 1 << 20, Refused: 3})
	case "lag": // cursor, events
		return s.lagOf(words[1], number64(words[2]))
	case "step":
		d, _ := time.ParseDuration(words[1])
		return do(frame.ClockStep{To: s.at.Add(d), Agreed: []string{"n1", "n2"}})
	default:
		return do(frame.Tick{})
	}
}

// lagOf reports the lag of the cursor that has this name now.
func (s *narrator) lagOf(name string, lag uint64) request {
	c := frame.LagReport{Cursor: name, Lag: lag}
	if cur, found := s.m.Cursor(name); found {
		c.Created = cur.Created.UnixNano()
	}
	return do(c)
}

// journals reads views as n1:lost:7:1m:2m (voter, kind, seq, began, ended), starts as
// n2:up:90s:60s (it ran until a minute after the beginning), leaderships as n2:led:3:2m:3m, in time
// since the story began.
func (s *narrator) journals(words []string) (c frame.OutageViews) {
	at := func(text string) time.Time {
		d, _ := time.ParseDuration(text)
		return epoch.Add(d)
	}
	for _, w := range words {
		f := strings.Split(w, ":")
		if f[1] == "up" {
			up := election.Up{Voter: f[0], Since: at(f[2])}
			if len(f) > 3 {
				up.Before = at(f[3])
			}
			c.Up = append(c.Up, up)
			continue
		}
		if f[1] == "led" {
			c.Led = append(c.Led, election.Span{Leader: f[0], Term: number64(f[2]), From: at(f[3]), To: at(f[4])})
			continue
		}
		c.Views = append(c.Views, election.View{
			Voter:   f[0],
			Journal: "j" + f[0],
			Kind:    f[1],
			Seq:     number64(f[2]),
			Began:   at(f[3]),
			Ended:   at(f[4]),
			Term:    s.term - 1,
			Leader:  "n1",
			Cause:   "unreachable",
			Refused: 3,
		})
	}
	return c
}

func (s *narrator) configure(words []string) string {
	s.index++
	var members []ConfigMember
	for _, w := range words {
		id := strings.TrimPrefix(w, "-")
		members = append(members, ConfigMember{ID: id, Addr: id, Voter: id == w})
	}
	if err := s.m.ApplyConfiguration(s.index, s.term, []byte(strings.Join(words, " ")), members); err != nil {
		return failed(err)
	}
	return s.news()
}

func contents(words []string) (events []event.Event) {
	for _, w := range words {
		n, id, _ := strings.Cut(w, "=")
		n, other, fielded := strings.Cut(n, "/")
		content, _ := strconv.Atoi(n)
		e := ev(content)
		if fielded {
			e.Payload = fmt.Appendf(nil, `{"n": %d, "run": "%s"}`, content, other)
		}
		events = append(events, withID(e, id))
	}
	return events
}

// entry applies one request and returns the answer and what was appended, as text.
func (s *narrator) entry(requests ...request) string {
	s.index++
	r, results := requests[0], applyTo(s.t, s.m,
		gated(s.m.Policy().Dedup, s.index, s.term, s.leader, s.at, requests...))
	text := ""
	if words := describe(r, results[0]); words != "" {
		text = "  " + words + "\n"
	}
	if refusal := results[0].Refusal; refusal != nil {
		text = fmt.Sprintf("  %s\n", refusal)
	}
	if results[0].Cursor != nil && results[0].Cursor.Gap != nil {
		text += show(results[0].Cursor.Gap)
	}
	return text + s.news()
}

// news returns what was appended and trimmed since the last call, as text.
func (s *narrator) news() (text string) {
	first, last := s.m.Log().Bounds()
	for offset := max(first, s.shown+1); offset <= last; offset++ {
		e, err := s.m.Log().Get(offset)
		if err != nil {
			return text + failed(err)
		}
		text += fmt.Sprintf("  %d %s %s\n", e.Offset, e.Type, e.Payload)
	}
	s.shown = last
	if first != max(s.first, 1) {
		text += fmt.Sprintf("  the log begins at %d\n", first)
	}
	s.first = first
	return text
}
