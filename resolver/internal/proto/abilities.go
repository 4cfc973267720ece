package proto

import "net"

// Abilities are what a protocol can do beyond classifying; nil, or false, where it can't.
type Abilities struct {
	AddressValidator AddressValidator
	Namer            Namer
	Querier          Querier
	Reteller         Reteller
	Waiter           Waiter
	// Requests reports whether clients make one request after the other.
	Requests bool
}

// AbilitiesOf finds out a protocol's abilities.
func AbilitiesOf(p Protocol) (a Abilities) {
	a.AddressValidator, _ = p.(AddressValidator)
	a.Namer, _ = p.(Namer)
	a.Querier, _ = p.(Querier)
	a.Reteller, _ = p.(Reteller)
	a.Waiter, _ = p.(Waiter)
	_, a.Requests = p.(Requester)
	return a
}

// Requester is a Protocol whose clients make one request after the other on a connection. A
// client that is refused is told so after its first request, and a relay is followed from
// request to request.
type Requester interface {
	Protocol
	// MakesRequests distinguishes the protocol from others. It does nothing.
	MakesRequests()
}

// AddressValidator is a Protocol of datagrams some of whose clients can validate their address.
type AddressValidator interface {
	Protocol
	// ValidateAddress is Inspect where anything wakes the service. It asks a client to validate
	// its address that could and hasn't.
	ValidateAddress(datagram []byte, c Client) Verdict
}

// Namer is a Protocol whose clients say first which host they want, so that several
// services can share one address.
type Namer interface {
	Protocol
	// ServerName reads the host from what a client sent so far, in lower case and without a dot
	// at its end; empty when the client doesn't name one. The action is Hold once the host is
	// known, NeedMore, or Refuse for bytes that are not of the protocol.
	ServerName(head []byte) (name string, action Action)
}

// Querier is a Protocol whose servers describe themselves when they are queried.
type Querier interface {
	Protocol
	// Ask queries a server over a connection of its own, on which the caller has set a
	// deadline. A server that answers is up. What it reports is later answered in its place.
	Ask(c net.Conn) (Answers, error)
}

// Question is a client's question to a server that other clients ask, too.
type Question struct {
	// Key is the same for questions that have the same answer.
	Key string
	// Ask is what to ask the server with. It may lie in what the client sent.
	Ask []byte
	// Used is how many bytes of what the client sent are the question.
	Used int
}

// Reteller is a Protocol in which a server's answer to one client's query may be given to other
// clients that ask the same.
type Reteller interface {
	Protocol
	// Asks reads a client's question, from what it sent so far or from a datagram; ok is false
	// where the server must answer it itself. The verdict is an Answer where the client must
	// validate its address first, and is told so: then it asks again.
	Asks(head []byte, c Client) (q Question, v Verdict, ok bool)
	// Fetch asks a server, over a connection of its own on which the caller has set a deadline,
	// and returns its answer of at most MaxRetold bytes.
	Fetch(c net.Conn, ask []byte) (answer []byte, err error)
	// Retell writes a server's answer for a client that sent head.
	Retell(to, answer, head []byte) []byte
	// ValidatesAddress reports whether clients that ask have validated their address. Over TCP
	// they have.
	ValidatesAddress() bool
}

// MaxRetold bounds an answer that is given again, in bytes.
const MaxRetold = 64 << 10
