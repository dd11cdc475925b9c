// Package service does what callers ask a node for: publish, read, cursors, groups, dead letters, clients,
// settings, trims, and what explains them. It knows operations and no protocol: package server decodes
// requests into its types and encodes its answers.
//
// It promises:
//
//   - A rule holds for every protocol alike, as each operation checks what it is given itself.
//
//   - Every error can be shown to a caller: ToAPI says what is wrong, where, and what to do.
//
//   - A command that was acknowledged is in this node's own state when the call returns, if the node
//     catches up within a second: the next call to the same node finds it done.
//
// The parts of a Service, by subject, each in the file of its name:
//
//	Log       publish, read, follow, wait, trim, register types, what deduplication did
//	Cursors   durable cursors: make, open, commit, seek, read, and why an event was not delivered
//	Groups    groups whose members share a cursor; package engine delivers
//	Letters   dead letters: list, redrive, purge, import
//	Clients   who has registered to listen to what
//	Roles     names that one process holds at a time, by leases
//	Allocations  amounts of resources, granted by priority
//	Schedule  events that are published at a time
//	Views     what is folded of the log: definitions, rows, rules
//	Transfers copies between hosts, from a built-in view
//	Tokens    who may call, and what they may do
//	Settings  the cluster's settings
//	Reports   what is computed from the log: audit, chains, history
//
// All share a core: the node, the way to propose a command, and checks that several of them need.
//
// It also has five duties, each a goroutine that ends with ctx and acts on the node that leads: it finds which
// lagging cursors have nothing to get (scan.go), reports cursors that lag (lagwatch.go) and runs that are overdue
// (chainwatch.go), publishes scheduled events (schedule.go), and what the rules of views fire (views_publish.go).
//
//	s := service.New(ctx, node, heartbeat, logger)
//	answer, err := s.Log.Publish(ctx, &policy, service.PublishRequest{Events: events})
//	s.Wait() // after ctx has ended
package service
