// Package gameserver keeps each Server's Pod: it builds it, replaces it when it ends, reports
// what it sees in the Server's status, and deletes the Pod only when the Server's players
// allow.
//
// A pass observes, plans, applies and writes the status. plan.go decides, from what was
// observed alone; pod.go, storage.go and guard.go build and write the child objects. A
// plan only has that a Pod is wanted: package hostports picks its ports, which takes a lock, while
// the plan is applied. The rest reads and writes. The game's own reports arrive in the
// status through package report, which owns those fields while a game runs. This package owns
// the others, and clears the game's when no game runs.
package gameserver
