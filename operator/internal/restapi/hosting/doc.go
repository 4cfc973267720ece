// Package hosting manages one person's game servers by number: for each a Server with a disk, the
// Service by which players reach it, and the ElasticService that puts it to sleep.
//
// The cluster is the only store. What a server was asked for is read back from its Server, and every
// call brings the Service and the ElasticService to what they should be first, so that a call that
// broke off in the middle is completed by the next one, on any replica.
//
// It knows nothing of HTTP, and nothing of who asks: its caller has checked that.
package hosting
