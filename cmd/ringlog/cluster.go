package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/urfave/cli/v2"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/offline"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// aMember names the argument in errors.
const aMember = "the id of a member"

// clusterCommand is cluster and its verbs: who belongs to it, who leads, what it reports about itself, and how a
// cluster without a majority is recovered.
func clusterCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "cluster", Usage: "show and manage the cluster and its members",
		UsageText: shell.Examples("ringlog cluster status", "ringlog cluster step-down", "ringlog cluster history"),
		Subcommands: []*cli.Command{
			// What the nodes say.
			clusterStatusCommand(sh),
			{Name: "members", Usage: "list members as the leader sees them", Action: shell.Bare(sh, listMembers),
				UsageText: shell.Examples("ringlog cluster members")},
			// Changes of the membership, which the leader makes.
			addMemberCommand(sh),
			{Name: "promote", Usage: "make a non-voter a voter", ArgsUsage: "ID", Flags: []cli.Flag{forceFlag()},
				UsageText: shell.Examples("ringlog cluster promote n3"),
				Action: shell.Args(1, aMember, func(c *cli.Context) error {
					return promoteMember(c.Context, sh, c.Args().First(), c.Bool("force"))
				})},
			// The others ask first, report the past, or work on a stopped node.
			demoteCommand(sh), removeMemberCommand(sh), stepDownCommand(sh), clusterHistoryCommand(sh),
			clusterOutageCommand(sh), offline.RecoverCommand(sh),
		},
	}
}

// forceFlag allows more voters than five.
func forceFlag() cli.Flag {
	return &cli.BoolFlag{Name: "force", Usage: "allow more than five voters"}
}

// memberPath is the route of a member. rest is appended as it is, as in "/promote".
func memberPath(id, rest string) string { return "/v1/members/" + url.PathEscape(id) + rest }

// memberList is what a node's status says of the members.
type memberList struct {
	NodeID      string       `json:"node_id"`
	Cluster     string       `json:"cluster_id"`
	NotFormed   string       `json:"not_formed"`
	JoinRefused string       `json:"join_refused"`
	Members     []api.Member `json:"members"`
	Quorum      api.Quorum   `json:"quorum"`
	LeaderID    string       `json:"leader_id"`
	// of a change: what should be looked at, such as an even number of voters
	Warning string `json:"warning"`
}

// listMembers prints the members.
func listMembers(ctx context.Context, sh *shell.Shell) error {
	list, err := fetchMembers(ctx, sh)
	if err != nil {
		return err
	}
	// Only the leader hears from all members: who follows it knows their health from it, and later.
	list, seenBy := leadersView(ctx, sh, list)
	// A node outside of the cluster knows no members, or those that its folder has.
	if why := notAdmittedText(list.NodeID, list.Cluster, list.NotFormed, list.JoinRefused); why != "" && !sh.JSON {
		sh.Say("%s", why)
		if list.Cluster == "" {
			return nil
		}
	}
	if seenBy != "" && len(list.Members) > 0 && !sh.JSON {
		sh.Say("%s", seenBy)
	}
	slices.SortFunc(list.Members, func(a, b api.Member) int { return cmp.Compare(a.ID, b.ID) })
	return shell.EmitEach(sh, "member", list.Members,
		table.Row{"id", "role", "http", "raft", "healthy", "last contact", "lag"}, func(m api.Member) table.Row {
			return table.Row{m.ID, roleText(sh, memberRole(m, list.LeaderID)), m.HTTP, m.Raft, healthText(sh, m.Healthy),
				contactText(m.LastContactMs), shell.Count(m.TrailingEntries, "entry", "entries")}
		})
}

// leadersView returns the leader's own list in place of that of another node. Without a leader that answers the list
// stays, with no leader in it, and seenBy says whose it is.
func leadersView(ctx context.Context, sh *shell.Shell, list memberList) (_ memberList, seenBy string) {
	if list.LeaderID != "" && list.LeaderID == list.NodeID {
		return list, ""
	}
	why := "no leader"
	i := slices.IndexFunc(list.Members, func(m api.Member) bool { return m.ID == list.LeaderID })
	if i >= 0 {
		ctx, cancel := context.WithTimeout(ctx, shell.NodeWithin)
		defer cancel()
		var own memberList
		err := sh.Ask(ctx, sh.NodeURL(list.Members[i].HTTP), "/status", &own)
		if err == nil && own.NodeID == list.LeaderID && own.LeaderID == own.NodeID {
			return own, ""
		}
		why = fmt.Sprintf("%s, which led, does not answer as the leader", list.LeaderID)
	}
	list.LeaderID = ""
	return list, fmt.Sprintf("%s: as %s sees them", why, list.NodeID)
}

// fetchMembers returns the members as a node that knows a leader has them, or any node if none does.
func fetchMembers(ctx context.Context, sh *shell.Shell) (list memberList, err error) {
	// A cluster without a leader is listed, too: any node's view is better than none.
	ctx, cancel := context.WithTimeout(ctx, sh.Timeout)
	defer cancel()
	raw, _, err := sh.AnyStatus(ctx)
	if err != nil {
		return list, err
	}
	return list, json.Unmarshal(raw, &list)
}

// memberRole returns leader, follower or non-voter, as a node says of itself; "-" for a voter where nobody leads.
func memberRole(m api.Member, leader string) string {
	switch {
	case !m.Voter:
		return api.RoleNonVoter
	case leader == "":
		return "-"
	case m.ID == leader:
		return api.RoleLeader
	default:
		return api.RoleFollower
	}
}

// contactText says how long ago a member was heard from.
func contactText(ms int64) string {
	// Negative means that there was no contact so far.
	if ms < 0 {
		return "never"
	}
	return shell.Short(time.Duration(ms) * time.Millisecond)
}

// roleText prints the role of a node, the leader's in colour.
func roleText(sh *shell.Shell, role string) string {
	// A candidate is a state that should be over in a moment.
	switch role {
	case api.RoleLeader:
		return sh.Paint(shell.Good, role)
	case api.RoleCandidate:
		return sh.Paint(shell.Warn, role)
	case unreachable, otherToken:
		return sh.Paint(shell.Bad, role)
	}
	return role
}

// healthText prints whether a member is healthy.
func healthText(sh *shell.Shell, healthy bool) string {
	if healthy {
		return sh.Paint(shell.Good, "yes")
	}
	return sh.Paint(shell.Bad, "no")
}

// yesNo prints a boolean for people.
func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// addMemberCommand is cluster add. The new node has to run, and reach the cluster: the leader asks it who it is.
func addMemberCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "add", Usage: "add a running node to the cluster", ArgsUsage: "URL",
		UsageText: shell.Examples("ringlog cluster add http://10.0.0.4:8770 --non-voter"),
		Description: "URL is the new node's HTTP address; its id, raft address and incarnation are read from it. " +
			"A node\nthat was started with --join joins by itself.",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "non-voter", Usage: "add it as a non-voter"}, forceFlag()},
		Action: shell.Args(1, "the URL of the new node", func(c *cli.Context) error {
			// Exactly one address, in any of the forms of --endpoints.
			at, err := shell.ParseEndpoints(c.Args().First())
			if err != nil {
				return err
			}
			// The id and the raft address are not given: the cluster asks the new node for them.
			// The others reach the node at the address that is given here.
			in := map[string]any{"http": at[0], "voter": !c.Bool("non-voter"), "force": c.Bool("force")}
			list, err := fetchMembers(c.Context, sh)
			if err != nil {
				return err
			}
			done := "added"
			// This is only for the words of the answer: the node decides what changes.
			for _, m := range list.Members {
				if shell.URLOf(m.HTTP) == at[0] {
					done = "already a member:"
				}
			}
			err = changeMember(c.Context, sh, http.MethodPost, "/v1/members", in, done)
			return newcomerProblem(c.Context, sh, at[0], err)
		}),
	}
}

// newcomerProblem distinguishes a new node that the cluster cannot connect to, and the raft port of a node, from a
// request that is wrong.
func newcomerProblem(ctx context.Context, sh *shell.Shell, at string, err error) error {
	answer, refused := errors.AsType[*api.Error](err)
	switch {
	case !refused:
		return err
	// Only this reason means that the request was right and the new node did not answer the cluster.
	case answer.Reason == api.ReasonUnreachable:
		return fmt.Errorf("%w at %s\n%s", shell.ErrNewcomerSilent, at, answer.Remedy)
	case answer.Field != "http":
		return err
	}
	// The cluster does not show what it has found there, so the address is asked from here, without the token.
	ctx, cancel := context.WithTimeout(ctx, shell.NodeWithin)
	defer cancel()
	var health json.RawMessage
	found, is := errors.AsType[*api.Error](sh.At(at).Ask(ctx, at, "/healthz", &health))
	if is && found.Reason == "raft_port" {
		return shell.Usagef("%s: %s\n%s", at, found.Message, found.Remedy)
	}
	return err
}

// changeMember makes a change and prints what the members are then.
func changeMember(ctx context.Context, sh *shell.Shell, method, path string, in any, done string) error {
	// The answer has whom the change was about, and the members as they are after it.
	var answer struct {
		ID string `json:"id"`
		memberList
	}
	// The leader answers once the change is committed.
	if err := sh.Call(ctx, method, path, nil, in, &answer); err != nil {
		return err
	}
	// A warning, such as of an even number of voters, is a notice: the change was made.
	if answer.Warning != "" {
		sh.Say("warning: %s", answer.Warning)
	}
	return sh.Emit(answer, func() error {
		_, err := fmt.Fprintf(sh.Out, "%s %s; %s\n", done, answer.ID, quorumText(answer.Quorum))
		return err
	})
}

// promoteMember makes a member a voter. Promoting a voter changes nothing, and says so.
func promoteMember(ctx context.Context, sh *shell.Shell, id string, force bool) error {
	list, err := fetchMembers(ctx, sh)
	if err != nil {
		return err
	}
	done := "promoted"
	// This is only for the words of the answer: the node decides what changes.
	for _, m := range list.Members {
		if m.ID == id && m.Voter {
			done = "already a voter:"
		}
	}
	return changeMember(ctx, sh, http.MethodPost, memberPath(id, "/promote"), map[string]bool{"force": force}, done)
}

// demoteCommand is cluster demote, which asks before it takes a vote: fewer voters may fail afterwards.
func demoteCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "demote", Usage: "make a voter a non-voter", ArgsUsage: "ID", Flags: shell.ConsentFlags(),
		UsageText: shell.Examples("ringlog cluster demote n3 --dry-run"),
		Action: shell.Args(1, aMember, func(c *cli.Context) error {
			// It stays a member, and still receives the log.
			return dismissMember(c.Context, sh, c.Args().First(), shell.ConsentOf(c), http.MethodPost, "/demote",
				"demoted")
		}),
	}
}

// removeMemberCommand is cluster remove, which asks. A removed node does not join again by itself with the folder that
// it has: cluster add admits it.
func removeMemberCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "remove", Usage: "remove a member from the cluster", ArgsUsage: "ID", Flags: shell.ConsentFlags(),
		UsageText: shell.Examples("ringlog cluster remove n3 --dry-run"),
		Action: shell.Args(1, aMember, func(c *cli.Context) error {
			// A voter is removed with its vote: it need not be demoted before.
			return dismissMember(c.Context, sh, c.Args().First(), shell.ConsentOf(c), http.MethodDelete, "", "removed")
		}),
	}
}

// dismissMember removes a vote or a membership after asking, and prints what quorum
// is left.
func dismissMember(ctx context.Context, sh *shell.Shell, id string, leave shell.Consent,
	method, rest, done string) error {
	list, err := fetchMembers(ctx, sh)
	if err != nil {
		return err
	}
	// Count the voters that remain, for whoever has to decide.
	voters := 0
	var found *api.Member
	for i, m := range list.Members {
		if m.ID == id {
			found = &list.Members[i]
		} else if m.Voter {
			voters++
		}
	}
	// Checked before the question, so nobody agrees to what cannot be done.
	if found == nil {
		return shell.NotFoundf("there is no member %q: list them with ringlog cluster members", id)
	}
	// The change itself needs a quorum: a retry until --timeout would end in the same.
	if list.Quorum.Margin < 0 {
		return fmt.Errorf("%w: %s: nobody can be %s without a quorum\n%s", shell.ErrLeaderless, quorumText(list.Quorum), done,
			seeOutage)
	}
	// A majority of those that remain, without the member.
	left := fmt.Sprintf("%s, %d needed for a quorum", shell.Count(voters, "voter remains", "voters remain"), voters/2+1)
	if found.Voter && voters == 1 {
		left = "1 voter remains, and while it is down nothing is accepted"
	}
	// A dry run asks nothing and changes nothing.
	if leave.DryRun {
		sh.Say("%s would be %s; %s", id, done, left)
		return nil
	}
	if err := sh.Confirm(leave, "%s would be %s; %s. Continue?", id, done, left); err != nil {
		return err
	}
	return changeMember(ctx, sh, method, memberPath(id, rest), nil, done)
}

// stepDownCommand is cluster step-down, which needs no consent: it loses nothing, and takes some milliseconds.
func stepDownCommand(sh *shell.Shell) *cli.Command {
	return &cli.Command{
		Name: "step-down", Usage: "transfer leadership to another voter",
		UsageText: shell.Examples("ringlog cluster step-down", "ringlog cluster step-down --to n2"),
		// Without a name the leader chooses whoever lacks the least.
		Flags: []cli.Flag{&cli.StringFlag{Name: "to",
			Usage: "`ID` of the new leader (default: a voter that has caught up)"}},
		Action: shell.NoArgs(func(c *cli.Context) error {
			return stepDown(c.Context, sh, c.String("to"))
		}),
	}
}

// stepDown waits until the cluster has its new leader.
func stepDown(ctx context.Context, sh *shell.Shell, to string) error {
	// One time limit for the whole: the transfer and the wait for its effect.
	ctx, cancel := context.WithTimeout(ctx, sh.Timeout)
	defer cancel()
	// The term before shows later which leader is the new one.
	before, _, err := anyStatus(ctx, sh)
	if err != nil {
		return err
	}
	var answer map[string]any
	if err := sh.Call(ctx, http.MethodPost, "/v1/cluster/step-down", nil, map[string]string{"to": to},
		&answer); err != nil {
		return err
	}
	// The answer says that the leader stepped down; who leads now only the next term shows.
	after, err := awaitTerm(ctx, sh, before.Term)
	if err != nil {
		return err
	}
	// Both leaders, so a script sees who took over from whom.
	result := map[string]any{"from": before.LeaderID, "leader_id": after.LeaderID, "leader_http": after.LeaderHTTP,
		"term": after.Term}
	return sh.Emit(result, func() error {
		_, err := fmt.Fprintf(sh.Out, "%s leads term %d; the leader before was %s\n", after.LeaderID, after.Term,
			before.LeaderID)
		return err
	})
}

// awaitTerm waits for a leader of a later term.
func awaitTerm(ctx context.Context, sh *shell.Shell, after uint64) (nodeStatus, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		// Nodes may name the old leader, or none, until they notice the new term.
		s, _, err := anyStatus(ctx, sh)
		if err == nil && s.Term > after && s.LeaderID != "" {
			return s, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return s, fmt.Errorf("wait for a leader after term %d: %w", after, ctx.Err())
		}
	}
}
