package proto

import "time"

// Waiter is a Protocol some of whose clients wait for longer than HoldAtMost if they are asked
// a question now and then, which they answer.
type Waiter interface {
	Protocol
	// Patience is after how long without a message a held client is asked a question, and how
	// long its answer may take: together less than what clients wait for.
	Patience() (ask, answer time.Duration)
	// WouldWait reports whether a client that sent head is such a client.
	WouldWait(head []byte) bool
	// Question appends the n-th question to a client, from 1 on.
	Question(to []byte, n int32) []byte
	// Reply returns how many bytes of b, which begins with what the client sent after the n-th
	// question, are its answer; 0 while more of it may follow. An error means that it is no
	// answer.
	Reply(b []byte, n int32) (size int, err error)
}
