//go:build !race

package raftnode

const raceEnabled = 0
