// Package book decides which Allocation gets which Server. It is all memory: what the cache tells of
// Servers, Allocations, ElasticServices and nodes is put in, and what is to be written comes out. It
// knows no client.
//
// One lock and one book decide for a whole cluster, so no two Allocations can get the same place. A
// decision holds its place from the moment in which it is made, long before the cache shows it, and
// lets go only once the cache shows, or a write has succeeded in saying, that it is over.
//
// Every replica fills its book. Only the leader's decides, once Lead was called with all of the cache
// in it: so a new leader knows all that was given before it gives anything.
//
// An Allocation takes a step for each of its namespace's views, which there are as many of as different
// questions are asked (a target, a selector), and none for each Server: a view has its Servers in the
// order in which they are given.
package book
