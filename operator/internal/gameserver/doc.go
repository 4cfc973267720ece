// Package gameserver keeps each Server's Pod: it builds it, replaces it when it
// ends, tells what it sees in the Server's status, and takes it away only when
// the Server's players allow.
//
// A pass observes, plans, applies and writes the status. plan.go decides, from what was
// observed alone; pod.go, storage.go and guard.go say what the child objects look like.
// ports.go picks host ports, which takes a lock: a plan only says that a Pod is wanted, and
// its ports are picked while the plan is applied. The rest
// reads and writes. What the game itself says arrives in the status through
// package report, which owns those fields while a game runs; this package owns
// the others, and clears the game's when no game runs.
package gameserver
