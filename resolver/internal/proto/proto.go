// Package proto is the interface between the data plane and the protocols that it understands.
// The data plane owns sockets, queues and timeouts. A Protocol only classifies bytes and never
// consumes them: whatever is held reaches the server as the client sent it.
//
// Each protocol has a package of its own below this one. The parsers are in files named
// parse.go, which know nothing of Kubernetes.
package proto

import (
	"time"
)

// Action is what to do with a client that wants a service which is not up.
type Action int

const (
	// Hold keeps the client, and what it sent, until a server is up.
	Hold Action = iota
	// NeedMore waits for more bytes before it decides. A datagram is never continued: over UDP
	// it is dropped.
	NeedMore
	// Answer sends Verdict.Answer in the server's place and wakes nothing. A connection goes
	// on: what the client sends next is classified anew.
	Answer
	// Refuse sends Verdict.Answer, which may be empty, and ends the client.
	Refuse
	// Finish is Answer for a connection that ends with its answer in the protocol.
	Finish
)

// Verdict is a protocol's classification of a client's first bytes.
type Verdict struct {
	Action Action
	// Reason is why a client is refused; empty: Unwanted.
	Reason Reason
	// Answer is sent with Answer, Refuse and Finish. It may be part of the scratch that Inspect
	// was lent, but never of head.
	Answer []byte
	// Used is how many bytes an Answer is for; they are not replayed.
	Used int
	// Once: a connection gets one such Answer, and no more time for it. A client that asks
	// again is refused. Answers are larger than questions, and a connection that is answered
	// without end would keep others from its place.
	Once bool
	// Brief: a client that is held waits no longer than the wake takes to be asked for. It is
	// told then that the service wakes, and comes again by itself.
	Brief bool
	// After is how long a connection must be silent for the verdict to hold: what it sent so
	// far may be all, or the beginning of something else.
	After time.Duration
	// AddressValidated: the sender of a datagram has shown that it receives what is sent to its
	// address. Others get answers that are hardly larger than their datagram.
	AddressValidated bool
}

// WakeOn is when a client counts as wanting the server.
type WakeOn int

const (
	// OnConnect is as soon as there is a connection. Inspect isn't called.
	OnConnect WakeOn = iota
	// OnData is when Inspect returns Hold.
	OnData
)

// Reason is why a client is refused.
type Reason string

// Reasons.
const (
	// TimedOut: the server was not up in time.
	TimedOut Reason = "timeout"
	// WaitingPage: a person is shown that the server wakes, and comes again.
	WaitingPage Reason = "waiting_page"
	// QueueFull: as many clients are held as may be.
	QueueFull Reason = "queue_full"
	// TooManySessions: the pod has as many UDP sessions as it may have.
	TooManySessions Reason = "too_many_sessions"
	// TooManyBytes: the pod holds as many bytes as it may hold, or the service its share of them.
	TooManyBytes Reason = "too_many_bytes"
	// NothingToWake: the service has no target that could be woken.
	NothingToWake Reason = "nothing_to_wake"
	// RouteGone: the service is not served here any more.
	RouteGone Reason = "route_gone"
	// Unwanted: the protocol refused what the client sent.
	Unwanted Reason = "unwanted"
	// NoProxyHeader: a connection from an address that must send the PROXY protocol's header
	// doesn't begin with one.
	NoProxyHeader Reason = "no_proxy_header"
	// UnknownName: the client asks for a host name that no service has.
	UnknownName Reason = "unknown_name"
	// Unfinished: the client did not send enough in time to tell what
	// it wants.
	Unfinished Reason = "unfinished"
	// Evicted: others came before the client had said what it wants.
	Evicted Reason = "evicted"
	// Denied: clients from its address, or this player, may not wake the
	// service.
	Denied Reason = "denied"
	// Maintenance: the service is kept asleep for a time.
	Maintenance Reason = "maintenance"
	// SourceRate and ServiceRate: as many clients of the source, or of all sources, have asked
	// for the service within a minute as may.
	SourceRate  Reason = "source_rate"
	ServiceRate Reason = "service_rate"
	// SourceConnections and SourceSessions: the source has as many clients without a backend,
	// or as many clients, as it may have at once.
	SourceConnections Reason = "source_connections"
	SourceSessions    Reason = "source_sessions"
	// TooManyConnections: the pod, or the service's share of it, has no
	// room for another connection.
	TooManyConnections Reason = "too_many_connections"
	// AnswerRate: a query was dropped, because answers to addresses that are not validated are
	// limited.
	AnswerRate Reason = "answer_rate"
)

// MaxHead bounds the bytes of a connection that Inspect is given. Protocols decide with less; a
// client that needs more is refused.
const MaxHead = 16 << 10

// Protocol classifies the bytes of one protocol. Its methods are called concurrently and keep
// nothing of their arguments.
type Protocol interface {
	// Name is the protocol's name in the API.
	Name() string
	// WakeOn is when a client counts as wanting the server.
	WakeOn() WakeOn
	// HoldAtMost is how long a client of the protocol can be held before it gives up by itself;
	// 0 where that is not known.
	HoldAtMost() time.Duration
	// Inspect classifies what a client sent so far, or one datagram, while no server is up to
	// do so.
	Inspect(head []byte, c Client) Verdict
	// Refusal is what a client that is refused is sent in its own protocol; nil: its connection
	// is only closed. Head is what it sent so far, or its first datagram.
	Refusal(why Reason, head []byte, c Client) []byte
}
