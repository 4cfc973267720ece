package http1

import (
	"bytes"
	"errors"
	"net"
	"strings"

	"dormouse.dev/dormouse/resolver/internal/proto"
)

var _ proto.Namer = Protocol{}

// preface is the beginning of HTTP/2, in which a client's requests may be for several hosts at
// once. Such clients are told to use HTTP/1.1, by an empty SETTINGS and a GOAWAY with the error
// HTTP_1_1_REQUIRED (RFC 9113, 3.4 and 7).
const (
	preface  = "PRI * HTTP/2.0\r\n"
	needsOne = "\x00\x00\x00\x04\x00\x00\x00\x00\x00" +
		"\x00\x00\x08\x07\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x0d"
)

// ServerName implements proto.Namer, by the first request. Clients of HTTP/1.0 may name no
// host.
func (Protocol) ServerName(head []byte) (name string, action proto.Action) {
	r, _, err := ParseRequest(head)
	switch {
	case errors.Is(err, errShort) && len(head) < proto.MaxHead:
		return "", proto.NeedMore
	case err != nil:
		return "", proto.Refuse
	}
	name, ok := hostOf(r.Target, r.host, r.hosts)
	if !ok {
		return "", proto.Refuse
	}
	return name, proto.Hold
}

// hostOf is the name of the host that a request is for, by its target or its Host; false:
// there are several.
func hostOf(target, said []byte, hosts int) (name string, ok bool) {
	if hosts > 1 {
		return "", false
	}
	host := string(said)
	if scheme, rest, found := bytes.Cut(target, []byte("://")); found && isToken(scheme) {
		authority, _, _ := bytes.Cut(rest, []byte("/"))
		authority, _, _ = bytes.Cut(authority, []byte("?"))
		host = string(authority)
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(host, ".")), true
}

// Stop is why no more of what a client sends is passed.
type Stop int

const (
	// GoesOn means that there is no reason to stop.
	GoesOn Stop = iota
	// Turned means that the next request is for another host, or one too many for now.
	Turned
	// Cut means that the ends of requests can't be found any more.
	Cut
)

// Only must be called before anything is read. From then on Read passes a request's head once
// it is complete. It passes nothing from the first request on for whose host the function
// returns false. Nor does it pass anything that can't be followed, or of the server what answers
// no request, until the server has changed the protocol as it was asked to.
func (x *Exchange) Only(host func(name string) bool) {
	x.only = host
	x.streams[Client].keepsHost = host != nil
}

// Guards reports whether Only was called and the protocol has not changed since.
func (x *Exchange) Guards() bool {
	if x.only == nil {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.upgraded
}

// Stopped is why no more of what the client sends is passed.
func (x *Exchange) Stopped() Stop {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stop
}

// InHead reports whether the client's next bytes are part of a request's head.
func (x *Exchange) InHead() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.lost && x.streams[Client].inHead()
}

// Between reports whether all requests that were passed are answered.
func (x *Exchange) Between() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.lost && x.open == 0 && x.streams[Server].atRest() && !x.passing[Server]
}

// checkHost decides what an event of the client's stream leads to.
func (x *Exchange) checkHost(e event) Stop {
	f := &x.streams[Client].framing
	switch e {
	case broken:
		return Cut
	case headEnd:
		name, ok := hostOf(x.target, f.host, f.hosts)
		x.target, f.host = nil, nil // they may be long
		switch {
		case !f.plain(x.minor[Client]):
			return Cut
		case !ok, x.open == maxOpen, !x.only(name):
			return Turned
		}
	case nothing, messageEnd:
	}
	return GoesOn
}
