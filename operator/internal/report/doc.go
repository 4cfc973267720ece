// Package report receives sidecars' reports about their games, on every replica of the
// operator, and answers with what the game has to know: that its Server is to end or to drain,
// and the Server's state.
//
// A report is a long poll: it is held until there is news, or for reportapi.HoldTime. Who may
// report for which Server is decided by the token and by the cache of Pods and Servers, without
// a call of the API server.
//
// The last report of each Server is kept in memory, and it alone is authoritative: a worker
// compares it with the Server that the API server has and writes what differs, so that a
// hundred changes in a second become two writes. All replicas write. A write fails where the
// Server changed since it was read, and the status names the report that it is from, so that an
// older report never replaces a newer one that came to another replica.
//
// Of a Server's status the package writes only what reports are about (players,
// deletionAllowed, game, counters and lists), and of its metadata only labels and annotations
// with wellknown.SDKMetadataPrefix. Everything else belongs to the Server controller.
package report
