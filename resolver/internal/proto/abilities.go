package proto

import "net"

// Abilities are what a protocol can beyond classifying, as far as it can: nil, or false,
// where it can't.
type Abilities struct {
	Prover   Prover
	Namer    Namer
	Asker    Asker
	Reteller Reteller
	Waiter   Waiter
	// Requests reports whether clients make one request after the other.
	Requests bool
}

// AbilitiesOf finds out what a protocol can.
func AbilitiesOf(p Protocol) (a Abilities) {
	a.Prover, _ = p.(Prover)
	a.Namer, _ = p.(Namer)
	a.Asker, _ = p.(Asker)
	a.Reteller, _ = p.(Reteller)
	a.Waiter, _ = p.(Waiter)
	_, a.Requests = p.(Requester)
	return a
}

// Requester is a Protocol whose clients make one request after the other on a connection. One
// that is refused is told so once it has asked for something, and a relay is followed from
// request to request.
type Requester interface {
	Protocol
	// MakesRequests is there to tell the protocol from others.
	MakesRequests()
}

// Prover is a Protocol of datagrams some of whose clients can show that they are
// where they say.
type Prover interface {
	Protocol
	// Prove is Inspect where anything wakes the service, but for who could show where
	// it is and hasn't: that one is asked to.
	Prove(datagram []byte, c Client) Verdict
}

// Namer is a Protocol whose clients say first which host they want, so that several
// services can share one address.
type Namer interface {
	Protocol
	// ServerName reads that host out of what a client sent so far: in lower case and
	// without a dot at its end, empty when the client doesn't say it. The action is
	// Hold once it is known, NeedMore, or Refuse for what is not of the protocol.
	ServerName(head []byte) (name string, action Action)
}

// Asker is a Protocol whose servers tell of themselves when they are asked.
type Asker interface {
	Protocol
	// Ask asks a server over a connection of its own, on which the caller has set a
	// deadline. A server that answers is up. What it tells is told in its place
	// later.
	Ask(c net.Conn) (Answers, error)
}

// Question is what a client asks of a server that others ask, too.
type Question struct {
	// Key is the same for questions that have the same answer.
	Key string
	// Ask is what to ask the server with. It may lie in what the client sent.
	Ask []byte
	// Used is how many bytes of what the client sent are the question.
	Used int
}

// Reteller is a Protocol in which what a server said to one client who only asked may
// be told to others who ask the same.
type Reteller interface {
	Protocol
	// Asks reads what a client asks, from what it sent so far or from a datagram; ok
	// is false where the server must answer it itself. The verdict is an Answer where the
	// client must show first where it is, and is told so: then it asks the same again.
	Asks(head []byte, c Client) (q Question, v Verdict, ok bool)
	// Fetch asks a server, over a connection of its own on which the caller has set a
	// deadline, and gives its answer in at most MaxRetold bytes.
	Fetch(c net.Conn, ask []byte) (answer []byte, err error)
	// Retell writes a server's answer for a client that sent head.
	Retell(to, answer, head []byte) []byte
	// Proves reports whether whoever asks has shown that it receives what is sent to its
	// address: connections do.
	Proves() bool
}

// MaxRetold bounds an answer that is told again, in bytes.
const MaxRetold = 64 << 10
