// Package gametype keeps what a GameType asks for. Its controller observes the
// GameType's Fleets, a pure planner decides how many Servers each revision has,
// and the controller does that; the Fleets' own controller does the rest. It also
// keeps the Service and the ElasticService of the GameType's name.
//
// The package makes, changes and deletes Fleets, makes and changes those two
// services, and writes the GameType's status. It must not touch Pods, nor Servers
// but for one thing: those whose time to retire is over it deletes by force. It
// writes no endpoints: those are the ElasticService controller's.
//
// A deleted GameType stays until its Servers are gone, by a finalizer: its Service
// is the way by which players reach them, and would go at once without.
package gametype
