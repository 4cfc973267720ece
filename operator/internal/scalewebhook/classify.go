package scalewebhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"syscall"
	"time"

	"dormouse.dev/dormouse/operator/internal/outbound"
	"dormouse.dev/dormouse/operator/internal/text"
)

// classify makes a reason and a sentence of an exchange's error. stage is what the webhook had not
// yet done.
func classify(ctx context.Context, err error, to target, timeout time.Duration, stage string) *Error {
	// The context first: what it ends fails in many ways.
	if errors.Is(context.Cause(ctx), errTimeout) {
		return failure(Timeout, "%s %s within %v: make it answer sooner, or raise the timeout (at most %v)", to.name, stage, timeout, MaxTimeout)
	}
	if ctx.Err() != nil {
		return cancelled(context.Cause(ctx))
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return failure(e.Reason, "%s can't be asked. %s", to.name, e.Message)
	}
	if e, ok := errors.AsType[*outbound.Error](err); ok {
		return failure(NotAllowed, "%s can't be asked. %s", to.name, e.Message)
	}
	if e := classifyTLS(err, to); e != nil {
		return e
	}
	if e, ok := errors.AsType[*net.DNSError](err); ok {
		if e.IsNotFound {
			return failure(Refused, "%s can't be asked: its name has no address", to.name)
		}
		return failure(Refused, "%s can't be asked: its name could not be resolved", to.name)
	}
	op, _ := errors.AsType[*net.OpError](err)
	switch {
	case timedOut(err):
		return failure(Timeout, "%s can't be connected to within %v", to.name, timeout)
	case errors.Is(err, syscall.ECONNREFUSED):
		return failure(Refused, "%s refuses the connection: does it run, and listen on that port?", to.name)
	case op != nil && op.Op == "dial":
		return failure(Refused, "%s can't be connected to: %s", to.name, text.Plain(op.Err.Error(), maxInner))
	}
	return failure(ConnectionLost, "%s %s before the connection ended: %s", to.name, stage, text.Plain(err.Error(), maxInner))
}

// timedOut reports whether a dial or a handshake ended by the timeout of its own, which is as long as the
// question's, or by the kernel's.
func timedOut(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// classifyTLS returns nil for errors that aren't of TLS.
func classifyTLS(err error, to target) *Error {
	if e, ok := errors.AsType[x509.HostnameError](err); ok {
		want := e.Host
		if to.host != "" {
			want = to.host
		}
		return failure(TLS, "The certificate of %s isn't for %s: it must name that host", to.name, text.Plain(want, maxInner))
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		if e.Reason == x509.Expired {
			return failure(TLS, "The certificate of %s has expired or is not yet valid: renew it", to.name)
		}
		return failure(TLS, "The certificate of %s is not valid: %s", to.name, text.Plain(e.Error(), maxInner))
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return failure(TLS, "The certificate of %s isn't of an authority in caBundle: put the one that signed it there", to.name)
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return failure(TLS, "%s doesn't speak TLS: ask it by http, without caBundle", to.name)
	}
	_, verification := errors.AsType[*tls.CertificateVerificationError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	op, _ := errors.AsType[*net.OpError](err)
	if verification || alert || op != nil && (op.Op == "remote error" || op.Op == "local error") {
		return failure(TLS, "The connection to %s can't be secured: %s", to.name, text.Plain(err.Error(), maxInner))
	}
	return nil
}
