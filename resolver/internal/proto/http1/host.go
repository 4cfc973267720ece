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

// Only is called before anything is read. From then on Read passes a request's head once
// all of it is there, and nothing of the first request of which host is false, nor of what
// follows it. What the client says that can't be followed, but for an upgrade to another
// protocol, is not passed either.
func (x *Exchange) Only(host func(name string) bool) {
	x.only = host
	x.streams[Client].keepsHost = host != nil
}

// Guards says that Only was called.
func (x *Exchange) Guards() bool { return x.only != nil }

// Turned says that there was such a request.
func (x *Exchange) Turned() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.turned
}

// Between says that all requests that were passed are answered.
func (x *Exchange) Between() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !x.lost && x.open == 0 && x.streams[Server].atRest() && !x.passing[Server]
}

// isOther takes in the end of a request's head: true for another host's.
func (x *Exchange) isOther() bool {
	f := &x.streams[Client].framing
	name, ok := hostOf(x.target, f.host, f.hosts)
	return !ok || !x.only(name)
}
