// Package kindwatch watches kinds of which is known only at run time that they matter: those that
// users' objects name, and that may come and go as CRDs do.
//
// A kind has one watch, however many name it. It begins when the first does, and ends when nobody
// has for half a minute: a tool that makes an object anew doesn't make the watch anew. Nobody waits
// for a watch: until it has all objects, and where there is none, Get says so, and the caller
// reads the API server.
//
// A kind that the API server doesn't have, or the operator may not watch, is tried again with a
// growing pause. What is known of it is a State, which is logged when it changes. At most so many
// kinds are watched at once; those of Options.Usual are watched besides.
//
// What to begin and to end is decided by decide, a function of what is known. The package reads
// discovery, and lists and watches; it writes nothing.
package kindwatch
