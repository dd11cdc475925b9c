// Command ringlog runs nodes of the replicated event log and is its command line.
//
// It promises: data on stdout and notices on stderr; one JSON object a line with
// -o json; no prompt without a terminal; a closed pipe ends quietly; and these
// exit codes:
//
//	0 done                        4 not found
//	1 failed                      5 timed out
//	2 wrong usage or              6 refused by the log: conflict,
//	  configuration                 reserved type, fenced cursor …
//	3 no leader, or nobody reachable
//
// A verb is one file: a cli.Command that turns flags into a struct of options, and a
// function that takes a context, a *shell.Shell and that struct, and knows nothing of
// flags. What they share is package shell. Verbs that are programs of their own have a
// room each: serve, dev (and demo), bench, and offline for folders of stopped nodes.
package main
