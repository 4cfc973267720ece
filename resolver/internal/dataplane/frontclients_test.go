package dataplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/dataplane/tcp"
	"dormouse.dev/dormouse/resolver/internal/route"
	"dormouse.dev/dormouse/test/env"
)

func TestOtherPeoplesMinecraftClientsShareAFront(t *testing.T) {
	t.Parallel()
	run := scripts(t, "minecraft.js")
	const version = "1.20.4"
	s := newShared(t)
	s.service("survival", v1alpha1.ProtocolMinecraft, "survival.example.com")
	s.service("creative", v1alpha1.ProtocolMinecraft, "*.creative.example.com")
	type list struct {
		Description any
		Error       string
	}
	shows := func(host, want string) {
		t.Helper()
		var got list
		run("ping", version, portOf(t, s.address), host).next(&got)
		text, _ := got.Description.(string)
		if parts, ok := got.Description.(map[string]any); ok {
			text, _ = parts["text"].(string)
		}
		if got.Error != "" || text != want {
			t.Errorf("at %s the list shows %+v, want %q", host, got, want)
		}
	}
	shows("survival.example.com", "survival sleeps")
	shows("A.Creative.Example.com", "creative sleeps")
	shows("nobody.example.com", tcp.NoSuchServer)
	var fared end
	run("join", version, portOf(t, s.address), "nobody.example.com").next(&fared)
	if !strings.Contains(fared.Reason, "no server by this name") {
		t.Errorf("who joins nobody sees %+v", fared)
	}
	s.undisturbed()

	// One waits for a server that sleeps, while others play on one that is awake.
	waits := run("join", version, portOf(t, s.address), "survival.example.com")
	if !within(clientPatience, func() bool { return s.sessionsOf("survival").Queued == 1 }) {
		t.Fatal("the player never came")
	}
	for _, name := range []string{"creative", "survival"} {
		server := freeAddress(t, route.TCP)
		var listening struct{ Listening int }
		run("serve", version, portOf(t, server), "this is "+name).next(&listening)
		s.up(name, server)
		if name == "creative" {
			run("join", version, portOf(t, s.address), "a.creative.example.com").next(&fared)
			if fared.Joined != version || s.sessionsOf("survival").Queued != 1 {
				t.Errorf("who joins creative sees %+v", fared)
			}
			shows("b.creative.example.com", "this is creative")
		}
	}
	fared = end{}
	if waits.next(&fared); fared.Joined != version {
		t.Errorf("who waited for survival sees %+v", fared)
	}
	shows("survival.example.com", "this is survival")
}

// tlsServer answers HTTPS requests with its name, for which it has a certificate. It
// gives that.
func tlsServer(t *testing.T, host, address string) (certificate []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "this is "+host) }))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
	_ = server.Listener.Close()
	server.Listener = listen(t, address)
	server.StartTLS()
	t.Cleanup(server.Close)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestOtherPeoplesTLSClientsShareAFront(t *testing.T) {
	for name, program := range map[string]string{"curl": "curl", "openssl": "openssl"} {
		mayInstall(t, env.InstallDebian(t.Context(), name, program, os.Stderr))
	}
	s := newShared(t)
	s.service("a", v1alpha1.ProtocolTLS, "a.example.com")
	s.service("b", v1alpha1.ProtocolTLS, "*.b.example.com")
	servers := map[string]string{"a": freeAddress(t, route.TCP), "b": freeAddress(t, route.TCP)}
	authorities := filepath.Join(t.TempDir(), "authorities.pem")
	hosts := map[string]string{"a": "a.example.com", "b": "x.b.example.com"}
	var trusted []byte
	for name, host := range hosts {
		trusted = append(trusted, tlsServer(t, host, servers[name])...)
	}
	if err := os.WriteFile(authorities, trusted, 0o600); err != nil {
		t.Fatal(err)
	}
	curl := func(host string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "curl", "--silent", "--show-error", "--max-time", "30", "--noproxy", "*", "--cacert", authorities,
			"--connect-to", "::"+s.address, "https://"+host+"/").CombinedOutput()
		return string(out), err
	}
	if out, err := curl("nobody.example.com"); err == nil || !strings.Contains(out, "unrecognized name") {
		t.Errorf("who asks for nobody is told %q, %v", out, err)
	}
	s.undisturbed()
	for name, host := range hosts {
		// Each sleeps until it is asked for.
		answer := make(chan string, 1)
		go func() {
			out, err := curl(host)
			if err != nil {
				out += err.Error()
			}
			answer <- out
		}()
		s.eventually("the client is held", func() bool { return s.sessionsOf(name).Queued == 1 })
		s.up(name, servers[name])
		if got := <-answer; got != "this is "+host {
			t.Errorf("%s answers %q", host, got)
		}
		// It shows its own certificate: nothing was opened on the way.
		out, err := exec.CommandContext(t.Context(), "openssl", "s_client", "-connect", s.address, "-servername", host,
			"-CAfile", authorities, "-verify_hostname", host, "-verify_return_error").CombinedOutput()
		if err != nil || !strings.Contains(string(out), "Verify return code: 0 (ok)") {
			t.Errorf("openssl at %s: %v\n%s", host, err, out)
		}
	}
}
