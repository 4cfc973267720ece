//go:build race

package dataplane

// raceFactor loosens bounds on time: the race detector costs about that much.
const raceFactor = 8
