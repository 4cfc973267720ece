package scalewebhook

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// services is a cluster's Services, by namespace/name.
type services map[string]*corev1.Service

func (s services) lookup(_ context.Context, namespace, name string) (*corev1.Service, error) {
	return s[namespace+"/"+name], nil
}

func service(namespace, name, ip string, ports ...int32) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	svc.Spec.Type, svc.Spec.ClusterIP = corev1.ServiceTypeClusterIP, ip
	for _, p := range ports {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Port: p, Protocol: corev1.ProtocolTCP})
	}
	return svc
}

// at is the Service of a test's server, as if its ClusterIP were a loopback address.
func at(namespace, name, address string) *corev1.Service {
	addr := netip.MustParseAddrPort(address)
	return service(namespace, name, addr.Addr().String(), int32(addr.Port()))
}

// newClient makes a client that may dial loopback addresses.
func newClient(t *testing.T, options Options) *Client {
	t.Helper()
	options.Addresses = options.Addresses.WithLoopback()
	c := New(options)
	t.Cleanup(c.Close)
	return c
}

// serve runs a webhook, and returns its address.
func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String()
}

// serveTLS runs a webhook with a certificate for a host, and returns its address and the CA.
func serveTLS(t *testing.T, host string, expires time.Time, handler http.HandlerFunc) (string, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{host}, NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: expires,
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(handler)
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	return srv.Listener.Addr().String(), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// serveRaw runs a server that isn't quite HTTP, and returns its address. A connection's request has been read
// to the end of its header when handler is called.
func serveRaw(t *testing.T, handler func(*net.TCPConn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			buf := make([]byte, 64<<10)
			_, _ = conn.Read(buf)
			handler(conn.(*net.TCPConn))
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		<-done
	})
	return listener.Addr().String()
}

// untilGone waits until a client has closed the connection.
func untilGone(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) }

func answering(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }
}

// hanging never answers; it ends when the client has gone.
func hanging(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

func scaleTo(n int) http.HandlerFunc {
	return answering(`{"scale":true,"desired_replicas":` + strconv.Itoa(n) + `}`)
}

func lobby(namespace string) Review {
	return Review{Namespace: namespace, Name: "lobby", Replicas: 3, ReadyReplicas: 3, AllocatedReplicas: 1, Players: 20, Capacity: 60}
}

func hook() *ServiceReference { return &ServiceReference{Name: "hook"} }
