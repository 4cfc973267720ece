// Package player plays against the test game server and counts everything: each
// byte and datagram sent and received, what was lost, came late, twice or
// changed, and connections that were cut. Tests, demo and benchmarks use it.
//
// A [Player] opens its socket through a [DialFunc], so that it can stand in a
// network namespace of its own.
package player
