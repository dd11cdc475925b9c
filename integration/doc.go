// Package integration runs the built ringlog binary as real processes and breaks
// them: kills, pauses, power loss, lost folders, cut-off followers. After each it
// compares what was acknowledged with what every node has.
//
// Tests whose cluster meets nobody else run beside each other. Those that compare what the log
// reports with what was done run alone, as a busy machine is something to report, too.
//
// Its tests hold for any build of the binary: they use the command line, the HTTP API
// and the Go client, and of the node's packages only fsm.FeatureLevel. The files:
//
//   - cluster_test.go runs nodes as processes; netns_test.go puts each into a network
//     namespace, powerloss_test.go onto a file system of its own.
//   - chaos_test.go has the ledger of what was sent and acknowledged; faults_test.go,
//     members_test.go, handlers_test.go, run_test.go and durability_test.go break one
//     thing each.
//   - netns_scenarios_test.go compares what the log reports with what was done, in the
//     notation of netns_story_test.go.
//   - soak_*_test.go break everything in turn, for a given time.
//   - machine_test.go repeats a test during which the machine itself was paused.
//   - docs_*_test.go run the documents; rooms_test.go checks the imports.
//
// Folder mutants has planted breakages, and bench compares ringlog with other systems.
package integration
