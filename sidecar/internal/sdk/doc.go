// Package sdk speaks the Agones SDK, so that games which were written for Agones
// run unchanged: over gRPC, and over REST through a gateway. It keeps nothing:
// calls go to the game, and what is answered comes from there.
//
// The messages are generated from proto/*.proto by "make generate".
package sdk
