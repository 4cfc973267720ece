package scalewebhook

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"time"

	"dormouse.dev/dormouse/operator/internal/outbound"
)

const (
	// maxHeader bounds an answer's header, 1xx answers included.
	maxHeader = 16 << 10
	// maxIdle is how many connections to an endpoint are kept for the next question.
	maxIdle = 2
	// idleTimeout is how long they are kept. It is longer than most intervals.
	idleTimeout = 90 * time.Second
)

// newTransport makes the connections of one endpoint. It is no other's: what is
// trusted, and who may be dialled, differs. It follows no redirect, sends no credentials and keeps no
// cookie, all of which an http.Client would add. host is the name that a Service's certificate
// must have, and "" for a URL, which says that itself.
func newTransport(addresses outbound.Addresses, host string, authorities *x509.CertPool, timeout time.Duration) *http.Transport {
	dialer := &net.Dialer{
		// A dial goes on when its question is over. This ends it.
		Timeout:        timeout,
		ControlContext: addresses.Control(host != ""),
		// Go's own resolver takes no threads, and doesn't read 0x7f.1 as an address.
		Resolver: &net.Resolver{PreferGo: true},
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	return &http.Transport{
		Proxy:                  nil, // not the environment's either
		DialContext:            dialer.DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities, ServerName: host},
		TLSHandshakeTimeout:    timeout,
		DisableCompression:     true,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdle,
		MaxConnsPerHost:        2 * perEndpoint, // dials that go on, beside those asked
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeader,
		Protocols:              protocols,
	}
}
