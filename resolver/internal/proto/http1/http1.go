// Package http1 is HTTP/1: probes that the spec lists are answered while the server sleeps, and
// any other request wakes it. Where the spec wants that, people are shown a page meanwhile and
// everybody else waits. Anything that is not plain HTTP/1, such as TLS, HTTP/2 or
// garbage, is held like other bytes, and gets no answer.
//
// It also follows connections that are relayed, to find out when they are idle between
// requests. The format is RFC 9112's. What that leaves to servers is not decided here.
package http1

import (
	"bytes"
	"errors"
	"net/http"
	"time"

	"dormouse.dev/dormouse/resolver/internal/proto"
)

// Protocol is the protocol module.
type Protocol struct{}

var _ proto.Requester = Protocol{}

// Name implements proto.Protocol.
func (Protocol) Name() string { return "http" }

// WakeOn implements proto.Protocol. Browsers open connections that they may never use, and load
// balancers check whether a port is open.
func (Protocol) WakeOn() proto.WakeOn { return proto.OnData }

// MakesRequests implements proto.Requester.
func (Protocol) MakesRequests() {}

// HoldAtMost implements proto.Protocol.
func (Protocol) HoldAtMost() time.Duration { return 0 }

// Inspect implements proto.Protocol. After a probe with a body the connection is ended, so that
// nobody has to agree where the next request begins.
func (Protocol) Inspect(head []byte, c proto.Client) proto.Verdict {
	if len(head) == 0 {
		return proto.Verdict{Action: proto.NeedMore}
	}
	if c.Service.Phase == proto.Up {
		return proto.Verdict{Action: proto.Hold}
	}
	r, size, err := ParseRequest(head)
	if errors.Is(err, errShort) && len(head) < proto.MaxHead {
		return proto.Verdict{Action: proto.NeedMore}
	}
	if err != nil || r.upgrades {
		return proto.Verdict{Action: proto.Hold}
	}
	probe := find(c.Service.Probes, &r)
	if probe == nil {
		return proto.Verdict{Action: proto.Hold, Brief: c.Service.Page != nil && opensPage(&r)}
	}
	body := r.encodings > 0 || r.lengths > 1 || r.bad || r.length > 0
	if body || r.closes || r.Minor == 0 {
		return proto.Verdict{Action: proto.Finish, Answer: appendProbe(c, &r, probe, true)}
	}
	return proto.Verdict{Action: proto.Answer, Answer: appendProbe(c, &r, probe, false), Used: size}
}

// Refusal implements proto.Protocol. A whole request gets 503, or 429 for one too many, with a
// page for browsers that reloads itself; 403 if the client may not wake the service, and 503 if nobody may for a time; 404 for an
// unknown name, and 400 for two names. Half a request gets 408. Other bytes get none: the
// connection ends.
func (Protocol) Refusal(why proto.Reason, head []byte, c proto.Client) []byte {
	r, _, err := ParseRequest(head)
	switch {
	case errors.Is(err, errShort) && why == proto.Unfinished && len(head) > 0:
		return append(c.Scratch, "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"...)
	case bytes.HasPrefix(head, []byte(preface)) && why == proto.Unwanted:
		return append(c.Scratch, needsOne...)
	case err != nil:
		return nil
	case why == proto.UnknownName:
		return appendPlain(c, &r, http.StatusNotFound, "There is no server by this name here.\n")
	case why == proto.Unwanted:
		return appendPlain(c, &r, http.StatusBadRequest, "The request has several hosts.\n")
	case why == proto.Denied:
		return appendForbidden(c, &r)
	}
	return appendUnavailable(c, &r, why)
}
