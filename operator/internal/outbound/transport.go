package outbound

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// maxHeader bounds an answer's header, in bytes.
	maxHeader = 16 << 10
	// idleTimeout is how long a connection is kept for the next question. It is longer than
	// most intervals.
	idleTimeout = 30 * time.Second
	// forgetAfter is how long a Transport is remembered that isn't used, and maxTransports how
	// many there are at most.
	forgetAfter   = 5 * time.Minute
	maxTransports = 4096
)

// Trust says which server is trusted, and how the operator proves who it is. The zero value
// trusts whom the operator's system trusts.
type Trust struct {
	// CA are certificates in PEM; none: those of the operator's system.
	CA []byte
	// ServerName is the name that the server's certificate must have; empty: the request's.
	ServerName string
	// Certificate and Key are the operator's own, in PEM; none: it shows none.
	Certificate, Key []byte
}

// config makes a TLS configuration.
func (t Trust) config() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if len(t.CA) > 0 {
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(t.CA) {
			return nil, Failure(TLS, "The authorities that are to be trusted have no certificate in PEM: correct caBundle, or ca.crt in the Secret")
		}
	}
	if len(t.Certificate) > 0 {
		own, err := tls.X509KeyPair(t.Certificate, t.Key)
		if err != nil {
			return nil, Failure(BadSecret, "The Secret's tls.crt and tls.key are no certificate and its key in PEM")
		}
		c.Certificates = []tls.Certificate{own}
	}
	return c, nil
}

// Dial connects to an address. Without one of its own a Transport dials what the request says.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

// Transports are connections to servers, by who uses them and whom they trust. Redirects are not
// followed, no proxy of the environment is used, and nothing is sent but what the request has.
type Transports struct {
	mu    sync.Mutex
	all   map[[sha256.Size]byte]*transport
	swept time.Time
}

type transport struct {
	http *http.Transport
	used time.Time
}

// Get returns the connections of a user to a server with a trust. dial is used where there are
// none yet, so user must tell different ones apart.
func (t *Transports) Get(user string, trust Trust, dial Dial) (http.RoundTripper, error) {
	key := keyOf(user, trust)
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.sweep(now)
	if got := t.all[key]; got != nil {
		got.used = now
		return got.http, nil
	}
	config, err := trust.config()
	if err != nil {
		return nil, err
	}
	protocols := &http.Protocols{}
	protocols.SetHTTP1(true)
	made := &http.Transport{
		Proxy:                  nil, // not the environment's either
		DialContext:            dial,
		TLSClientConfig:        config,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    2,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeader,
		Protocols:              protocols,
	}
	t.all[key] = &transport{http: made, used: now}
	return made, nil
}

// sweep forgets Transports. One that is still used ends its connections by itself.
func (t *Transports) sweep(now time.Time) {
	if t.all == nil {
		t.all = map[[sha256.Size]byte]*transport{}
	}
	if now.Sub(t.swept) < forgetAfter && len(t.all) < maxTransports {
		return
	}
	t.swept = now
	oldest := now
	for _, got := range t.all {
		if got.used.Before(oldest) {
			oldest = got.used
		}
	}
	for key, got := range t.all {
		if now.Sub(got.used) >= forgetAfter || len(t.all) >= maxTransports && !got.used.After(oldest) {
			delete(t.all, key)
			got.http.CloseIdleConnections()
		}
	}
}

func keyOf(user string, trust Trust) [sha256.Size]byte {
	return Digest([]byte(user), trust.CA, []byte(trust.ServerName), trust.Certificate, trust.Key)
}

// Digest stands for several values where many are kept.
func Digest(values ...[]byte) [sha256.Size]byte {
	all := sha256.New()
	for _, value := range values {
		sum := sha256.Sum256(value)
		all.Write(sum[:])
	}
	return [sha256.Size]byte(all.Sum(nil))
}

// Bounded makes an answer's body fail beyond so many bytes.
func Bounded(body io.ReadCloser, most int64, advice string) io.ReadCloser {
	return &bounded{ReadCloser: body, left: most, most: most, advice: advice}
}

type bounded struct {
	io.ReadCloser
	left, most int64
	advice     string
}

func (b *bounded) Read(p []byte) (int, error) {
	// One more than is left tells a body of that very size from a longer one.
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, Failure(BadAnswer, "The answer has more than %d KiB: %s", b.most>>10, b.advice)
	}
	return n, err //nolint:wrapcheck // a Reader's errors are compared
}
