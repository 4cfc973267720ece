package outbound

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"syscall"

	"dormouse.dev/dormouse/operator/internal/text"
)

// Reason is why there is no answer, as a metric's label.
type Reason string

const (
	// NotAllowed means that the address is one that may not be asked.
	NotAllowed Reason = "not_allowed"
	// BadSecret means that a Secret is missing, may not be read or sent, or lacks something.
	BadSecret Reason = "secret"
	// Unreachable means that there was no connection, or that it ended before the answer did.
	Unreachable Reason = "unreachable"
	// Timeout means that the answer wasn't complete in time.
	Timeout Reason = "timeout"
	// TLS means that the connection could not be secured.
	TLS Reason = "tls"
	// BadStatus means that the answer's status was another than success, a redirect included.
	BadStatus Reason = "status"
	// BadAnswer means that the answer can't be used: too large, or not what was asked for.
	BadAnswer Reason = "answer"
)

// Reasons are all of them.
var Reasons = []Reason{NotAllowed, BadSecret, Unreachable, Timeout, TLS, BadStatus, BadAnswer}

const (
	// maxMessage bounds an Error's message, in characters.
	maxMessage = 600
	// MaxQuoted bounds what is quoted of an answer, or of other packages' errors, in characters.
	MaxQuoted = 200
)

// Error says why there is no answer.
type Error struct {
	// Reason is for programs.
	Reason Reason
	// Message is a sentence for people, without a full stop, that says what to change where that
	// is possible. It is one line of a few hundred characters at most.
	Message string
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// Failure makes an Error.
func Failure(reason Reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Message: text.Plain(fmt.Sprintf(format, args...), maxMessage)}
}

// ReasonOf returns the reason of an Error; other errors are of something unreachable.
func ReasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return Unreachable
}

// Classify makes an Error of what a connection to a server ended with. The sentence is the same
// each time the same happens, so that a condition that has it doesn't change. server is what
// people call it.
func Classify(err error, server string) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return Failure(e.Reason, "%s can't be asked. %s", server, e.Message)
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok && e.Reason == x509.Expired {
		return Failure(TLS, "The certificate of %s has expired or is not yet valid: renew it", server)
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return Failure(TLS, "The certificate of %s isn't of an authority that is trusted: put the one that signed it into caBundle, or into the Secret where that has a ca.crt", server)
	}
	if e, ok := errors.AsType[x509.HostnameError](err); ok {
		return Failure(TLS, "The certificate of %s isn't for %s: name one that it has in serverName", server, e.Host)
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok || errors.Is(err, http.ErrSchemeMismatch) {
		return Failure(TLS, "%s doesn't speak TLS: ask it by http, without tls", server)
	}
	_, verification := errors.AsType[*tls.CertificateVerificationError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	op, _ := errors.AsType[*net.OpError](err)
	if verification || alert || op != nil && (op.Op == "remote error" || op.Op == "local error") {
		return Failure(TLS, "The connection to %s can't be secured: %s", server, text.Plain(innermost(err).Error(), MaxQuoted))
	}
	timeout, _ := errors.AsType[net.Error](err)
	dns, _ := errors.AsType[*net.DNSError](err)
	switch {
	case errors.Is(err, context.DeadlineExceeded), timeout != nil && timeout.Timeout():
		return Failure(Timeout, "%s didn't answer in time", server)
	case dns != nil && dns.IsNotFound:
		return Failure(Unreachable, "%s can't be asked: its name has no address", server)
	case dns != nil:
		return Failure(Unreachable, "%s can't be asked: its name could not be resolved", server)
	case errors.Is(err, syscall.ECONNREFUSED):
		return Failure(Unreachable, "%s refuses the connection: does it run, and listen on that port?", server)
	}
	return Failure(Unreachable, "%s can't be asked: %s", server, text.Plain(innermost(err).Error(), MaxQuoted))
}

// innermost leaves out what other packages put around an error: the operator's own port, for
// example, which is another one each time.
func innermost(err error) error {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err
		}
		err = inner
	}
}
