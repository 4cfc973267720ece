// Package gameserver keeps each Server's Pod: it builds it, replaces it when it
// ends, tells what it sees in the Server's status, and takes it away only when
// the Server's players allow.
//
// plan.go decides, from what was observed alone; pod.go, storage.go and guard.go
// say what the child objects look like; ports.go picks host ports; the rest
// reads and writes. What the game itself says arrives in the status through
// package report, which owns those fields while a game runs; this package owns
// the others, and clears the game's when no game runs.
package gameserver
