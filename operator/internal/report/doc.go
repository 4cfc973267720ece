// Package report takes what sidecars say of their games, on every replica of the
// operator, and tells them in return what the game has to know: that its Server
// is to end or to drain, and how the Server looks.
//
// A report is a long poll: it is held until there is something to tell, or for
// reportapi.HoldTime. Who may report for which Server is decided by the token and
// by the cache of Pods and Servers, without a call of the API server.
//
// The last report of each Server is kept in memory, and it is the only truth: a
// worker compares it with the Server as the API server has it and writes what
// differs, so that a hundred changes in a second become two writes. All replicas
// write. A write fails where the Server changed since it was read, and the status
// names the report that it is of, so that an older report never replaces a newer
// one that came to another replica.
//
// The package writes of a Server's status only what a report is about (players,
// deletionAllowed, game, counters and lists), and of its metadata only labels and
// annotations with v1alpha1.SDKMetadataPrefix. Everything else is the Server
// controller's.
package report
