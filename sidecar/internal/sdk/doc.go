// Package sdk implements the Agones SDK, so that games which were written for Agones run
// unchanged: over gRPC, and over REST through a gateway. It keeps no state: calls go to the
// game, and answers come from there.
//
// The messages are generated from proto/*.proto by "make generate".
package sdk
