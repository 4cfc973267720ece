// Package gametype keeps what a GameType asks for. Its controller observes the GameType's
// Fleets, a pure planner decides how many Servers each revision has, and the controller carries
// that out; the Fleet controller does the rest. It also keeps the Service and the
// ElasticService of the GameType's name.
//
// The package creates, changes and deletes Fleets, creates and changes those two services, and
// writes the GameType's status. It must not touch Pods, nor Servers with one exception: it
// deletes by force those whose time to retire is over. It writes no endpoints: the
// ElasticService controller does.
//
// A deleted GameType stays until its Servers are gone, by a finalizer: players reach them
// through its Service, which would otherwise be deleted at once.
package gametype
