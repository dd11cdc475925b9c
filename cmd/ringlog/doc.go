// Command ringlog runs nodes of the replicated event log and is its command line.
//
// It promises: data on stdout and notices on stderr; one JSON object a line with
// -o json; no prompt without a terminal; a closed pipe ends quietly; and the exit codes
// that package shell lists, which ringlog help exit-codes prints.
//
// A verb is one file: a cli.Command that turns flags into a struct of options, and a
// function that takes a context, a *shell.Shell and that struct, and knows nothing of
// flags. What they share is package shell. Verbs that are programs of their own have a
// room each: serve, dev (and demo), bench, and offline for folders of stopped nodes.
package main
