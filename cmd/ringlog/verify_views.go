package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/cmd/ringlog/internal/shell"
)

// compareViews compares the rows of the views, by the digests that each node has of them. Rows are not read: a view
// may have many.
func compareViews(ctx context.Context, sh *shell.Shell, urls []string) shell.Finding {
	return awaitAgreement(ctx, func(ctx context.Context) shell.Finding {
		return judgeViews(askAll(ctx, sh, urls, fetchViewsOf))
	})
}

// fetchViewsOf reads all views of a node, with their digests. A node of an earlier build has none.
func fetchViewsOf(ctx context.Context, sh *shell.Shell, url string) (map[string]api.View, error) {
	var list api.Views
	// The list has no digests, so each view is asked for by its name.
	if err := unlessNotFound(sh.Ask(ctx, url, "/v1/views", &list)); err != nil {
		return nil, err
	}
	views := map[string]api.View{}
	for _, v := range list.Views {
		var one api.View
		if err := unlessNotFound(sh.Ask(ctx, url, viewPath(v.Name), &one)); err != nil {
			return nil, err
		}
		// It was removed meanwhile.
		if one.Name != "" {
			views[v.Name] = one
		}
	}
	return views, nil
}

// unlessNotFound returns err, or nil if it says that there is nothing of that name.
func unlessNotFound(err error) error {
	if e, ok := errors.AsType[*api.Error](err); ok && e.Code == api.NotFound {
		return nil
	}
	return err
}

// judgeViews compares the views that nodes have.
func judgeViews(nodes []answer[map[string]api.View]) shell.Finding {
	f := shell.Finding{Check: "views"}
	// A view that only some nodes have is compared, too: the others have generation 0 of it.
	names := map[string]bool{}
	for _, n := range nodes {
		if n.err != nil {
			f.Found = n.err.Error()
			return f
		}
		for name := range n.value {
			names[name] = true
		}
	}
	// The first difference is enough. In the order of the names, it is the same one in each run.
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if f.Found = viewDiffers(name, nodes); f.Found != "" {
			return f
		}
	}
	f.OK, f.Found = true, fmt.Sprintf("%s with the same rows on %s", shell.Count(len(names), "view"),
		shell.Count(len(nodes), "node"))
	return f
}

// viewDiffers says how nodes differ in a view; "" if they do not.
func viewDiffers(name string, nodes []answer[map[string]api.View]) string {
	// The first node is what the others are compared with.
	first := nodes[0].value[name]
	reported := map[uint64]int{} // by offset: how many nodes have a digest of it
	for _, n := range nodes {
		v := n.value[name]
		// Each of these makes the digests say nothing: the nodes fold different declarations, or different events.
		switch {
		case v.Generation != first.Generation:
			return fmt.Sprintf("%s has generation %d of view %q, %s has %d", nodes[0].url, first.Generation, name, n.url,
				v.Generation)
		case v.Failed != "":
			return fmt.Sprintf("%s does not fold view %q any further: %s", n.url, name, v.Failed)
		case v.From != first.From:
			return fmt.Sprintf("view %q begins at offset %d on %s, at %d on %s: to fold it again on all nodes, remove and "+
				"define it", name, max(first.From, first.Since), nodes[0].url, max(v.From, v.Since), n.url)
		}
		for _, d := range v.Digests {
			reported[d.Offset]++
		}
	}
	// The newest offset of which all have a digest has the most in it.
	newest, some := uint64(0), false
	for offset, n := range reported {
		if n == len(nodes) {
			newest, some = max(newest, offset), true
		}
	}
	// awaitAgreement asks again: nodes that fold at different speeds come to a common offset.
	if !some {
		return fmt.Sprintf("there is no offset at which all nodes have a digest of view %q", name)
	}
	// Every node has a digest at the newest offset, so the index is never -1.
	digestOf := func(v api.View) string {
		at := slices.IndexFunc(v.Digests, func(d api.ViewDigest) bool { return d.Offset == newest })
		return v.Digests[at].Hex
	}
	for _, n := range nodes[1:] {
		if digestOf(n.value[name]) != digestOf(first) {
			return fmt.Sprintf("%s and %s have different rows of view %q at offset %d", nodes[0].url, n.url, name, newest)
		}
	}
	return ""
}
