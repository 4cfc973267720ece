// Package allocate is what the REST API does to give a caller a Server: it makes an Allocation, waits
// for its answer, and sees to it that none is left that nobody has heard of. It knows no HTTP.
//
// An Allocation's name follows from the caller's session, so that the same session gets the same
// Server, at whichever replica it asks: the API server has no two objects of a name. Each call that
// has to do with an Allocation says so by an annotation of its own, which stays once the call has told
// its caller of the Server. A call whose caller is gone takes its annotation away, and deletes the
// Allocation if no other is left: so of a caller that breaks off and one that tries again neither
// takes the other's Server.
package allocate
