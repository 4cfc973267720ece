// Package allocation gives Allocations their Servers. What to give is decided by package book; this
// one tells the book what the cache has, and writes what the book has decided.
//
// It has no passes. An Allocation that comes is decided on in the cache's own goroutine, in memory, and
// its one status write is put into a queue of its own: so each costs its creator's write and that one.
// The Server's own status follows, by a pass of its controller.
package allocation
