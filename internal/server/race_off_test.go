//go:build !race

package server

const raceEnabled = 0
