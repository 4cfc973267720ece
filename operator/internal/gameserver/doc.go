// Package gameserver keeps each Server's Pod: it makes it, replaces it when it ends, reports
// what it sees in the Server's status, and deletes the Pod only when the Server's players
// allow.
//
// A pass observes, plans, applies and writes the status. Package planner decides, from what was
// observed alone, and podbuilder what a Pod is made of; slowstart and lastlook remember what earlier
// passes have seen and asked. They know nothing of this package, which reads and writes. A
// plan only has that a Pod is wanted: package hostports picks its ports, which takes a lock, while
// the plan is applied. The game's own reports arrive in the
// status through package report, which owns those fields while a game runs. This package owns
// the others, and clears the game's when no game runs.
package gameserver
