package http1

import (
	"bytes"
	"errors"
	"net"
	"strings"

	"dormouse.dev/dormouse/resolver/internal/proto"
)

var _ proto.Namer = Protocol{}

// preface is what clients of HTTP/2 begin with, whose requests may be for several hosts
// at once. They are told to use HTTP/1.1, by an empty SETTINGS and a GOAWAY with the
// error HTTP_1_1_REQUIRED (RFC 9113, 3.4 and 7).
const (
	preface  = "PRI * HTTP/2.0\r\n"
	needsOne = "\x00\x00\x00\x04\x00\x00\x00\x00\x00" +
		"\x00\x00\x08\x07\x00\x00\x00\x00\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x0d"
)

// ServerName implements proto.Namer, by the first request. Clients of HTTP/1.0 may say
// no name.
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

// Stop is why no more of what a client says is passed.
type Stop int

const (
	// GoesOn means that nothing stops.
	GoesOn Stop = iota
	// Turned means that the next request is for another host, or one too many for now.
	Turned
	// Cut means that nobody can tell any more where requests begin and end.
	Cut
)

// Only is called before anything is read. From then on Read passes a request's head once
// all of it is there, and nothing of the first request of which host is false, nor of what
// follows it. Nor does it pass anything that can't be followed, until the server has
// changed the protocol.
func (x *Exchange) Only(host func(name string) bool) {
	x.only = host
	x.streams[Client].keepsHost = host != nil
}

// Guards reports whether Only was called, and that the protocol is the same still.
func (x *Exchange) Guards() bool {
	if x.only == nil {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.upgraded
}

// Stopped says why no more of what the client says is passed.
func (x *Exchange) Stopped() Stop {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stop
}

// InHead reports whether what the client says next is part of a request's head.
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

// judge says what comes of what the client's stream came to.
func (x *Exchange) judge(e event) Stop {
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
