package restapi

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"

	"dormouse.dev/dormouse/internal/httpserver"
)

// protocols are those that the API speaks.
var protocols = []string{"HTTP/1.1", "HTTP/2.0"}

// network is the API's server with its callers in one process, in which no time passes while anybody does
// anything: as much passes as somebody waits for.
type network struct {
	t        *testing.T
	protocol string
	metrics  *Metrics
	conns    chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

// overNetworks runs a test with a server for each protocol, which has so many connections at most.
func overNetworks(t *testing.T, most int, test func(t *testing.T, serve func(http.Handler) *network)) {
	t.Helper()
	for _, protocol := range protocols {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test(t, func(handler http.Handler) *network { return newNetwork(t, protocol, most, handler) })
			})
		})
	}
}

func newNetwork(t *testing.T, protocol string, most int, handler http.Handler) *network {
	t.Helper()
	n := &network{t: t, protocol: protocol, metrics: NewMetrics(nil), conns: make(chan net.Conn), closed: make(chan struct{})}
	ln := httpserver.NewGate(n, httpserver.Bounds{Connections: most, OfCaller: most, Unanswered: maxUnanswered, OfRequest: ofRequest}, n.metrics.closed, logr.Discard())
	if protocol == "HTTP/2.0" {
		ln = tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{certificate(t)}, NextProtos: []string{"h2"}})
	}
	web := newWeb(handler)
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(ln) }()
	t.Cleanup(func() {
		_ = web.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return n
}

func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Accept implements net.Listener.
func (n *network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (n *network) Close() error {
	n.once.Do(func() { close(n.closed) })
	return nil
}

// Addr implements net.Listener.
func (*network) Addr() net.Addr { return &net.TCPAddr{} }

// peer is one of the server's callers, with a connection of its own.
type peer struct {
	*http.Client
	network *network
	conn    *ears
}

// ears is a caller's connection, of which nothing more is read once they are shut.
type ears struct {
	net.Conn
	shut chan struct{}
	end  chan struct{}
	once sync.Once
}

// Read implements net.Conn.
func (e *ears) Read(b []byte) (int, error) {
	n, err := e.Conn.Read(b)
	select {
	case <-e.shut:
		<-e.end
		return 0, net.ErrClosed
	default:
		return n, err
	}
}

// Close implements net.Conn.
func (e *ears) Close() error {
	e.once.Do(func() { close(e.end) })
	return e.Conn.Close()
}

func (n *network) peer() *peer {
	here, there := net.Pipe()
	c := &peer{network: n, conn: &ears{Conn: here, shut: make(chan struct{}), end: make(chan struct{})}}
	dialled := false
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if dialled {
				return nil, errors.New("the connection is closed")
			}
			dialled = true
			select {
			case n.conns <- there:
				return c.conn, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		},
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
	}
	c.Client = &http.Client{Transport: transport}
	n.t.Cleanup(func() {
		_ = c.conn.Close()
		_ = there.Close()
		transport.CloseIdleConnections()
	})
	return c
}

// ask makes a request, and returns its answer with the body to be read.
func (c *peer) ask(method, path, token, body string) (*http.Response, error) {
	scheme := "http"
	if c.network.protocol == "HTTP/2.0" {
		scheme = "https"
	}
	r, err := http.NewRequestWithContext(c.network.t.Context(), method, scheme+"://api"+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := c.Do(r)
	if err == nil && answer.Proto != c.network.protocol {
		c.network.t.Errorf("it is answered over %s, want %s", answer.Proto, c.network.protocol)
	}
	return answer, err
}

// wants makes a request whose answer has a status and the words, and reads that to its end.
func (c *peer) wants(status int, words, method, path, token, body string) {
	c.network.t.Helper()
	answer, err := c.ask(method, path, token, body)
	if err != nil {
		c.network.t.Fatalf("%s %s isn't answered: %v", method, path, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != status || !strings.Contains(string(text), words) {
		c.network.t.Errorf("%s %s: answered %d %s, %v; want %d with %q", method, path, answer.StatusCode, text, err, status, words)
	}
}
