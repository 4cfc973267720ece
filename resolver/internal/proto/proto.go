// Package proto is the seam between the data plane and the protocols that it
// understands. The data plane owns sockets, queues and times; a Protocol only
// judges bytes, which it never consumes: whatever is held reaches the server as
// the client sent it.
//
// Each protocol has a package of its own below this one. What parses bytes
// stands in files named parse.go, which know nothing of Kubernetes.
package proto

import (
	"time"
)

// Action is what to do with a client that wants a service which is not up.
type Action int

const (
	// Hold keeps the client, and what it sent, until a server is up.
	Hold Action = iota
	// NeedMore waits for more bytes before it decides. A datagram is all that
	// there is: with UDP it is dropped.
	NeedMore
	// Answer sends Verdict.Answer in the server's place and wakes nothing. A
	// connection goes on: what the client sends next is judged anew.
	Answer
	// Refuse sends Verdict.Answer, which may be empty, and ends the client.
	Refuse
	// Finish is Answer for a connection that the protocol ends with its answer.
	Finish
)

// Verdict is what a protocol makes of a client's first bytes.
type Verdict struct {
	Action Action
	// Reason is why a client is refused; empty: it is Unwanted.
	Reason Reason
	// Answer is sent with Answer, Refuse and Finish. It may lie in the scratch that
	// Inspect was lent, and never in head.
	Answer []byte
	// Used is how many bytes an Answer is for; they are not replayed.
	Used int
	// Once: a connection gets one such Answer, and no more time for it: who asks
	// again is refused. Answers are larger than questions, and a connection that is
	// answered without end is a place that nobody else gets.
	Once bool
	// After is how long a connection must have said nothing more for the verdict to
	// hold: what it said so far may be all, or the beginning of something else.
	After time.Duration
	// Proven: who sent a datagram has shown that it receives what is sent to
	// its address. Nobody else is told much more than it said.
	Proven bool
}

// WakeOn is the moment at which a client counts as wanting the server.
type WakeOn int

const (
	// OnConnect is as soon as there is a connection: Inspect isn't asked.
	OnConnect WakeOn = iota
	// OnData is when Inspect says Hold.
	OnData
)

// Reason is why a held client is sent away.
type Reason string

// Reasons.
const (
	// TimedOut: the server was not up in time.
	TimedOut Reason = "timeout"
	// QueueFull: as many clients are held as may be.
	QueueFull Reason = "queue_full"
	// TooManySessions: the pod has as many UDP sessions as it may have.
	TooManySessions Reason = "too_many_sessions"
	// TooManyBytes: the pod holds as many bytes as it may hold.
	TooManyBytes Reason = "too_many_bytes"
	// NothingToWake: the service has no target that could be woken.
	NothingToWake Reason = "nothing_to_wake"
	// RouteGone: the service is not served here any more.
	RouteGone Reason = "route_gone"
	// Unwanted: the protocol refused what the client sent.
	Unwanted Reason = "unwanted"
	// NoProxyHeader: a connection from where the PROXY protocol is spoken
	// doesn't begin with its header.
	NoProxyHeader Reason = "no_proxy_header"
	// UnknownName: the client asks for a host name that no service has.
	UnknownName Reason = "unknown_name"
	// Unfinished: the client did not send enough in time to tell what
	// it wants.
	Unfinished Reason = "unfinished"
	// Evicted: others came and the client had not said what it wants.
	Evicted Reason = "evicted"
	// Denied: clients from its address, or this player, may not wake the
	// service.
	Denied Reason = "denied"
	// SourceRate and ServiceRate say that as many clients of the source, or of all,
	// have asked for the service within a minute as may.
	SourceRate  Reason = "source_rate"
	ServiceRate Reason = "service_rate"
	// SourceConnections and SourceSessions say that the source has as many clients
	// without a server, or as many altogether, as it may have at once.
	SourceConnections Reason = "source_connections"
	SourceSessions    Reason = "source_sessions"
	// TooManyConnections: the pod, or the service's share of it, has no
	// room for another connection.
	TooManyConnections Reason = "too_many_connections"
	// AnswerRate: a query was dropped, because answers that could be sent to
	// somebody else's address are given so often only.
	AnswerRate Reason = "answer_rate"
)

// MaxHead bounds what Inspect is given of a connection. Protocols decide with
// less; a client that makes them ask for more is refused.
const MaxHead = 16 << 10

// Protocol judges the bytes of one protocol. Its methods are called by many at
// once and keep nothing of what they are given.
type Protocol interface {
	// Name is the protocol's name in the API.
	Name() string
	// WakeOn says when a client counts as wanting the server.
	WakeOn() WakeOn
	// HoldAtMost is for how long a client of the protocol can be held before it
	// gives up by itself; 0 where that is not known.
	HoldAtMost() time.Duration
	// Inspect judges what a client sent so far, or one datagram, while no server
	// is up that could.
	Inspect(head []byte, c Client) Verdict
	// Refusal is what a client that is sent away should be told in its own
	// protocol, where head is what it sent so far, or its first datagram; nil when
	// there is nothing but to close.
	Refusal(why Reason, head []byte, c Client) []byte
}
