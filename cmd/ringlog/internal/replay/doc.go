// Package replay holds the verbs about the past: it takes incidents of nodes, running or stopped, and opens them as a
// node of this process that is only read. What runs against one is sent nowhere else.
package replay
