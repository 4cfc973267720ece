package proto

import "time"

// Waiter is a Protocol some of whose clients go on waiting for longer than
// HoldAtMost when they hear something now and then that they answer.
type Waiter interface {
	Protocol
	// Patience is after how long without a word a held client is asked something,
	// and for how long its answer is waited for: together less than what clients
	// wait for.
	Patience() (ask, answer time.Duration)
	// WouldWait reports whether a client that sent head is one of those.
	WouldWait(head []byte) bool
	// Question appends what a client is asked for the n-th time, from 1 on.
	Question(to []byte, n int32) []byte
	// Reply says how many bytes of b, which begins with what the client sent after
	// the n-th question, are its answer; 0 while more of it may follow. An error
	// says that it is none.
	Reply(b []byte, n int32) (size int, err error)
}
