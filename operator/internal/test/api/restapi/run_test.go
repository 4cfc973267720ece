package restapi_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/program"
	"dormouse.dev/dormouse/operator/internal/restapi"
	"dormouse.dev/dormouse/test/api/fixture"
)

// writeCertificate writes a certificate of a name, as a Secret is mounted: the files change at once.
func writeCertificate(t *testing.T, dir, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, name)
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{"tls.crt": {Type: "CERTIFICATE", Bytes: der}, "tls.key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(data, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "next")
	if err := os.Symlink(data, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(link, filepath.Join(dir, "now")); err != nil {
		t.Fatal(err)
	}
}

// The program serves HTTPS with a certificate that it reads anew, and ends though streams are open and
// somebody waits for a Server, who is to come again.
func TestTheProgramServesHTTPSAndEnds(t *testing.T) {
	w := newWorld(t)
	w.want(w.call(0, w.token, http.MethodPost, "/api/v1/server/6000", two), 201)
	dir := t.TempDir()
	writeCertificate(t, dir, "one.example")
	scheme, err := fixture.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	address, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		ended <- restapi.Run(ctx, program.Process{Log: logr.Discard()}, fixture.Config(t), scheme, restapi.Options{
			Listen: "127.0.0.1:0", OwnListen: "127.0.0.1:0", Namespace: namespace, Rate: 1000, Burst: 1000,
			CertFile: filepath.Join(dir, "now", "tls.crt"), KeyFile: filepath.Join(dir, "now", "tls.key"),
			Listening: func(a net.Addr) { address <- a },
		})
	}()
	var at string
	select {
	case a := <-address:
		at = a.String()
	case err := <-ended:
		t.Fatal(err)
	}
	served := func(ctx context.Context, name string) error {
		dialer := &tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}
		conn, err := dialer.DialContext(ctx, "tcp", at)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		return fixture.WantEqual("the certificate's name", conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName, name)
	}
	fixture.Eventually(t, wait, "it has its certificate", func(ctx context.Context) error { return served(ctx, "one.example") })
	writeCertificate(t, dir, "two.example")
	fixture.Eventually(t, wait, "it has the new certificate", func(ctx context.Context) error { return served(ctx, "two.example") })

	browser := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	ask := func(method, path, body string) (*http.Response, error) {
		request, err := http.NewRequestWithContext(t.Context(), method, "https://"+at+path, strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+w.token)
		request.Header.Set("Content-Type", "application/json")
		return browser.Do(request)
	}
	stream, err := ask(http.MethodGet, "/api/v1/server/6000/events", "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Body.Close() }()
	if kind := stream.Header.Get("Content-Type"); stream.StatusCode != http.StatusOK || kind != "text/event-stream" {
		t.Fatalf("the stream is answered with %s of type %s", stream.Status, kind)
	}
	waited := make(chan error, 1)
	go func() {
		answer, err := ask(http.MethodPost, "/api/v1/allocate?wait=60s", `{"target":"nobodys"}`)
		if err != nil {
			waited <- err
			return
		}
		defer func() { _ = answer.Body.Close() }()
		text, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") == "" || !strings.Contains(string(text), `"unavailable"`) {
			err = fmt.Errorf("answered %s %s, Retry-After %q (%w)", answer.Status, text, answer.Header.Get("Retry-After"), err)
		}
		waited <- err
	}()
	fixture.Eventually(t, wait, "it waits for a Server", func(ctx context.Context) error {
		var all v1alpha1.AllocationList
		if err := w.admin.List(ctx, &all, client.InNamespace(namespace)); err != nil {
			return err
		}
		return fixture.WantEqual("Allocations", len(all.Items), 1)
	})
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(15 * time.Second): // before it would cut its callers off
		t.Error("it doesn't end while a stream is open")
	}
	if err := <-waited; err != nil {
		t.Errorf("who waits for a Server: %v", err)
	}
	fixture.Eventually(t, wait, "nothing is left of the wait", w.noAllocations)
}
