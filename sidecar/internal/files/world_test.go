package files

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/pkg/sftp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"
	"golang.org/x/crypto/bcrypt"
	"golang.org/x/crypto/ssh"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const goodPassword = "correct horse"

// world is a server with the user alice, who has a password, and bob, who has a key.
type world struct {
	*Server
	t *testing.T
	// root is served; outside is a directory beside it.
	root, outside, users string
	address              string
	bob                  ssh.Signer
	bobKey               []byte
	end                  context.CancelFunc
	ended                chan struct{}

	mu     sync.Mutex
	logged bytes.Buffer
}

func newWorld(t *testing.T, change func(*Options), adjust ...func(*Server)) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{t: t, root: dir + "/root", outside: dir + "/outside", users: dir + "/users", ended: make(chan struct{})}
	for _, d := range []string{w.root, w.outside, w.users} {
		check(t, os.Mkdir(d, 0o755))
	}
	w.setPassword("alice", goodPassword)
	w.bob, w.bobKey = newKey(t)
	w.write(w.users+"/bob.keys", string(ssh.MarshalAuthorizedKey(w.bob.PublicKey())))
	_, hostKey := newKey(t)
	w.write(dir+"/host", string(hostKey))
	opts := Options{
		Root: w.root, Users: w.users, HostKey: dir + "/host", UID: -1, GID: -1,
		IdleTimeout: time.Minute, MaxConnections: 16, Drain: time.Minute,
	}
	if change != nil {
		change(&opts)
	}
	log := funcr.New(func(_, line string) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.logged.WriteString(line + "\n")
	}, funcr.Options{})
	var err error
	w.Server, err = New(opts, prometheus.NewRegistry(), log)
	check(t, err)
	for _, a := range adjust {
		a(w.Server)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	w.address = ln.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	w.end = cancel
	go func() {
		defer close(w.ended)
		w.Serve(ctx, ln)
	}()
	t.Cleanup(func() {
		cancel()
		<-w.ended
		w.Close()
	})
	return w
}

func (w *world) logs() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.logged.String()
}

func newKey(t *testing.T) (ssh.Signer, []byte) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	check(t, err)
	signer, err := ssh.NewSignerFromKey(key)
	check(t, err)
	block, err := ssh.MarshalPrivateKey(key, "")
	check(t, err)
	return signer, pem.EncodeToMemory(block)
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) setPassword(user, password string) {
	w.t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	check(w.t, err)
	w.write(w.users+"/"+user+".password", string(hash)+"\n")
}

func (w *world) write(path, content string) {
	w.t.Helper()
	check(w.t, os.WriteFile(path, []byte(content), 0o600))
}

func (w *world) read(path string) string {
	w.t.Helper()
	content, err := os.ReadFile(path)
	check(w.t, err)
	return string(content)
}

func (w *world) refused(why refusal) int {
	return int(testutil.ToFloat64(w.metrics.refusals.WithLabelValues(string(why))))
}

// until waits for what the server counts or logs a moment after the client has its answer.
func (w *world) until(what string, is func() bool) {
	w.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.NewTimer(30 * time.Second)
	defer late.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-late.C:
			w.t.Fatalf("not within 30 s: %s\n%s", what, w.logs())
		}
	}
}

// dial logs in from an address of loopback.
func (w *world) dial(from, user string, auth ...ssh.AuthMethod) (*ssh.Client, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := dialer.DialContext(w.t.Context(), "tcp", w.address)
	if err != nil {
		return nil, err
	}
	conn, channels, requests, err := ssh.NewClientConn(c, w.address, &ssh.ClientConfig{
		User: user, Auth: auth, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	client := ssh.NewClient(conn, channels, requests)
	// A test that fails doesn't wait for the drain.
	w.t.Cleanup(func() { _ = client.Close() })
	return client, nil
}

// login logs alice in. The connection ends with the test.
func (w *world) login() *ssh.Client {
	w.t.Helper()
	c, err := w.dial("127.0.0.1", "alice", ssh.Password(goodPassword))
	check(w.t, err)
	w.t.Cleanup(func() {
		_ = c.Close()
		_ = c.Wait()
	})
	return c
}

func (w *world) sftp() *sftp.Client {
	w.t.Helper()
	c, err := sftp.NewClient(w.login())
	check(w.t, err)
	w.t.Cleanup(func() { _ = c.Close() })
	return c
}

// put writes a whole file by SFTP.
func put(c *sftp.Client, name, content string) error {
	f, err := c.Create(name)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, content)
	return errors.Join(err, f.Close())
}

// nothingOutside checks that the directory beside the root has the file that it had.
func (w *world) nothingOutside() {
	w.t.Helper()
	entries, err := os.ReadDir(w.outside)
	check(w.t, err)
	if len(entries) != 1 || w.read(filepath.Join(w.outside, "secret")) != "secret" {
		w.t.Errorf("outside there is %v", entries)
	}
}

func wantError(t *testing.T, what string, err error, says string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: error %v, want %q in it", what, err, says)
	}
}

// within fails the test where something takes longer than anything should.
// waitLogged waits until something was logged so often.
func (w *world) waitLogged(what string, times int) {
	w.t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for late := time.After(30 * time.Second); strings.Count(w.logs(), what) < times; {
		select {
		case <-tick.C:
		case <-late:
			w.t.Fatalf("%q isn't logged %d times within 30 s:\n%s", what, times, w.logs())
		}
	}
}

func within(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s: not after 30 s", what)
	}
}
