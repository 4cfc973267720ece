package http1

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"dormouse.dev/dormouse/resolver/internal/proto"
)

const (
	// retryAfter is when a client may come again, in seconds. By then a server that wakes is
	// nearer to being up, and a full queue is shorter.
	retryAfter = 5
	// retryLater is for a service that can't be woken now.
	retryLater = 60
	// maxRetry bounds it for one that is kept asleep: that may end sooner than was said.
	maxRetry = time.Hour
	// wakingUp is what a client is told of a service that is going to be up.
	wakingUp = "is waking up"
)

// appendProbe answers a probe.
func appendProbe(c proto.Client, r *Request, p *proto.Probe, ends bool) []byte {
	b := appendHead(c, p.Status, ends)
	typed := false
	for _, h := range p.Fields {
		typed = typed || strings.EqualFold(h.Name, "Content-Type")
		b = appendField(b, h.Name, h.Value)
	}
	if p.Body != "" && !typed {
		b = appendField(b, "Content-Type", "text/plain; charset=utf-8")
	}
	return appendBody(b, r, p.Status, p.Body)
}

// appendForbidden tells a client that coming again is of no use. It reveals nothing about the
// service, and has no page that would reload itself.
func appendForbidden(c proto.Client, r *Request) []byte {
	return appendPlain(c, r, http.StatusForbidden, "You may not wake this service.\n")
}

// appendPlain writes an answer of one line.
func appendPlain(c proto.Client, r *Request, status int, text string) []byte {
	b := appendHead(c, status, true)
	b = appendField(b, "Cache-Control", "no-store")
	b = appendField(b, "Content-Type", "text/plain; charset=utf-8")
	return appendBody(b, r, status, text)
}

// appendUnavailable tells a client why it is refused, and when to come again.
func appendUnavailable(c proto.Client, r *Request, why proto.Reason) []byte {
	status, state, retry := http.StatusServiceUnavailable, "is not available just now", retryAfter
	switch why {
	case proto.WaitingPage:
		state, retry = wakingUp, nextLook(c)
	case proto.TimedOut:
		state = wakingUp
	case proto.QueueFull, proto.TooManyBytes, proto.SourceConnections:
		state = "is waking up, and many are waiting for it"
	case proto.SourceRate, proto.ServiceRate:
		status, state = http.StatusTooManyRequests, "is asked for too often just now"
	case proto.Maintenance:
		state, retry = "is "+c.DownText(), untilUp(c)
	case proto.NothingToWake:
		state, retry = "cannot be woken up just now", retryLater
	default:
	}
	b := appendHead(c, status, true)
	b = appendField(b, "Retry-After", strconv.Itoa(retry))
	b = appendField(b, "Cache-Control", "no-store")
	if !wantsPage(r) {
		b = appendField(b, "Content-Type", "text/plain; charset=utf-8")
		return appendBody(b, r, status, c.Service.Name+" "+state+".\n")
	}
	b = appendField(b, "Content-Type", "text/html; charset=utf-8")
	b = appendField(b, "Content-Security-Policy", pagePolicy)
	return appendBody(b, r, status, page(c, state, retry))
}

// untilUp is when a client may come again to a service that is kept asleep, in seconds.
func untilUp(c proto.Client) int {
	left := min(c.Service.DownUntil.Sub(c.Now), maxRetry)
	return int(min(max(left+time.Second-1, time.Second), maxRetry) / time.Second)
}

// appendHead begins an answer.
func appendHead(c proto.Client, status int, ends bool) []byte {
	b := append(c.Scratch, "HTTP/1.1 "...)
	b = append(strconv.AppendInt(b, int64(status), 10), ' ')
	b = append(append(b, http.StatusText(status)...), "\r\nDate: "...)
	b = append(c.Now.UTC().AppendFormat(b, http.TimeFormat), "\r\n"...)
	if ends {
		b = appendField(b, "Connection", "close")
	}
	return b
}

func appendField(b []byte, name, value string) []byte {
	b = append(append(b, name...), ": "...)
	return append(append(b, value...), "\r\n"...)
}

// appendBody ends an answer. The answer to HEAD has only the body's length, and one whose
// status allows no body not even that.
func appendBody(b []byte, r *Request, status int, body string) []byte {
	if status == http.StatusNoContent || status == http.StatusNotModified {
		return append(b, "\r\n"...)
	}
	b = append(strconv.AppendInt(append(b, "Content-Length: "...), int64(len(body)), 10), "\r\n\r\n"...)
	if string(r.Method) == "HEAD" {
		return b
	}
	return append(b, body...)
}
