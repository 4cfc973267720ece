package scalewebhook

import (
	"errors"
	"fmt"
	"time"

	"dormouse.dev/dormouse/operator/internal/text"
)

// Reason is why there is no answer, as a condition's reason.
type Reason string

const (
	// BadEndpoint means that what is to be asked isn't well described: a URL, caBundle, port or
	// format.
	BadEndpoint Reason = "BadEndpoint"
	// ServiceNotFound means that there is no such Service.
	ServiceNotFound Reason = "ServiceNotFound"
	// NotAllowed means that the address or the Service is one that may not be asked.
	NotAllowed Reason = "NotAllowed"
	// Refused means that there was no connection: refused, unreachable, or a name that has no
	// address.
	Refused Reason = "Refused"
	// ConnectionLost means that the connection ended before the answer did, or that what
	// came wasn't HTTP.
	ConnectionLost Reason = "ConnectionLost"
	// Timeout means that the answer wasn't complete in time.
	Timeout Reason = "Timeout"
	// TLS means that the connection could not be secured: a certificate that has expired, is for
	// another host, or is of another authority, or a server that speaks no TLS.
	TLS Reason = "TLS"
	// BadStatus means that the answer's status was another than 200, a redirect included.
	BadStatus Reason = "BadStatus"
	// BadAnswer means that the answer can't be used: empty, too large, not JSON, or with
	// fields that are missing or make no sense.
	BadAnswer Reason = "BadAnswer"
	// CircuitOpen means that the endpoint failed several times and isn't asked for a while.
	CircuitOpen Reason = "CircuitOpen"
	// Busy means that the operator has too many webhooks already.
	Busy Reason = "Busy"
	// Cancelled means that whoever asked ended the question. It is no failure of the webhook.
	Cancelled Reason = "Cancelled"
)

// Error says why there is no answer.
type Error struct {
	// Reason is for programs.
	Reason Reason
	// Message is a sentence for people, without a full stop, that says what to change where that
	// is possible. It has no control characters and is at most a few hundred characters long.
	Message string
	// Until is when an open circuit lets the next question through; zero for other reasons.
	Until time.Time

	cause error
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the failure that opened a circuit, or whatever ended the question.
func (e *Error) Unwrap() error { return e.cause }

// ReasonOf returns the reason of an error of this package, and "" for others and for none.
func ReasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return ""
}

// Cause returns the reason of the failure that opened a circuit, and ReasonOf of other errors.
func Cause(err error) Reason {
	e, ok := errors.AsType[*Error](err)
	if ok && e.Reason == CircuitOpen && e.cause != nil {
		return Cause(e.cause)
	}
	return ReasonOf(err)
}

func failure(reason Reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: text.Plain(fmt.Sprintf(format, args...), maxMessage)}
}
