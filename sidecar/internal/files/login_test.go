package files

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/crypto/bcrypt"
	"golang.org/x/crypto/ssh"
)

func TestWhoLogsIn(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.MaxConnections = 64 })
	stranger, strangersKey := newKey(t)
	limited, _ := newKey(t)
	keys := w.read(w.users+"/bob.keys") + `from="10.0.0.1" ` + string(ssh.MarshalAuthorizedKey(limited.PublicKey()))
	w.write(w.users+"/bob.keys", "# bob's\n"+keys)
	w.write(w.users+"/slow.password", strings.Replace(w.read(w.users+"/alice.password"), "$04$", "$31$", 1))
	w.write(w.users+"/plain.password", goodPassword)
	logins := 0
	for name, c := range map[string]struct {
		user string
		auth ssh.AuthMethod
		ok   bool
	}{
		"a password":                         {"alice", ssh.Password(goodPassword), true},
		"a wrong password":                   {"alice", ssh.Password("wrong"), false},
		"no password":                        {"alice", ssh.Password(""), false},
		"a stranger":                         {"mallory", ssh.Password(goodPassword), false},
		"a key":                              {"bob", ssh.PublicKeys(w.bob), true},
		"a key after others":                 {"bob", ssh.PublicKeys(stranger, w.bob), true},
		"another's key":                      {"alice", ssh.PublicKeys(w.bob), false},
		"a stranger's key":                   {"bob", ssh.PublicKeys(stranger), false},
		"a key with an option":               {"bob", ssh.PublicKeys(limited), false},
		"a password for who has a key alone": {"bob", ssh.Password(goodPassword), false},
		"a hash that takes years":            {"slow", ssh.Password(goodPassword), false},
		"a password that isn't hashed":       {"plain", ssh.Password(goodPassword), false},
		"a path":                             {"../users/alice", ssh.Password(goodPassword), false},
		"the hash itself":                    {"alice", ssh.Password(strings.TrimSpace(w.read(w.users + "/alice.password"))), false},
	} {
		t.Run(name, func(t *testing.T) {
			w.guard.succeeded(addressOf(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))
			conn, err := w.dial("127.0.0.1", c.user, c.auth)
			if (err == nil) != c.ok {
				t.Errorf("login: %v, want it: %t", err, c.ok)
			}
			if err == nil {
				// Until then it is one of those without a login, of which the oldest makes room.
				logins++
				w.waitLogged("A user logged in", logins)
				_ = conn.Close()
			}
		})
	}
	w.end()
	within(t, "end", w.ended)
	logs := w.logs()
	for _, secret := range []string{goodPassword, "wrong", "mallory", string(strangersKey), "$2a$", "ssh-ed25519"} {
		if strings.Contains(logs, secret) {
			t.Errorf("%q is logged:\n%s", secret, logs)
		}
	}
	if in, out := strings.Count(logs, "A user logged in"), strings.Count(logs, "A user's session ended"); in != 3 || out != 3 {
		t.Errorf("%d logins and %d ends are logged, want 3:\n%s", in, out, logs)
	}
}

func TestAChangedPasswordCountsAtOnce(t *testing.T) {
	w := newWorld(t, nil)
	w.login()
	w.setPassword("alice", "another")
	if _, err := w.dial("127.0.0.1", "alice", ssh.Password(goodPassword)); err == nil {
		t.Error("the old password is good")
	}
	if c, err := w.dial("127.0.0.1", "alice", ssh.Password("another")); err != nil {
		t.Error(err)
	} else {
		_ = c.Close()
	}
	check(t, os.Remove(w.users+"/alice.password"))
	if _, err := w.dial("127.0.0.1", "alice", ssh.Password("another")); err == nil {
		t.Error("the password of a user who is gone is good")
	}
}

// A stranger costs the work that a user costs: the dummy is of the users' cost.
func TestStrangersCostAsMuch(t *testing.T) {
	w := newWorld(t, nil)
	for _, want := range []int{bcrypt.MinCost, 7, bcrypt.DefaultCost} {
		if want == bcrypt.DefaultCost {
			check(t, os.Remove(w.users+"/alice.password"))
		} else {
			hash, err := bcrypt.GenerateFromPassword([]byte("x"), want)
			check(t, err)
			w.write(w.users+"/alice.password", string(hash))
		}
		dummy := w.Server.users.dummy()
		if cost, err := bcrypt.Cost(dummy); cost != want || err != nil {
			t.Errorf("cost %d, %v, want %d", cost, err, want)
		}
		// Other errors than this one cost nothing.
		if err := bcrypt.CompareHashAndPassword(dummy, []byte("x")); !errors.Is(err, bcrypt.ErrMismatchedHashAndPassword) {
			t.Errorf("comparing: %v", err)
		}
	}
}

// Most of 1,000 wrong passwords aren't looked at, and others log in and work meanwhile.
func TestAThousandWrongPasswordsHurtNobodyElse(t *testing.T) {
	w := newWorld(t, nil)
	tried := 0
	var guessing sync.WaitGroup
	guessing.Go(func() {
		for tried < 1000 {
			before := tried
			_, err := w.dial("127.0.0.1", "alice", ssh.RetryableAuthMethod(ssh.PasswordCallback(func() (string, error) {
				tried++
				return "wrong", nil
			}), 100))
			if err == nil {
				t.Error("a wrong password is good")
			}
			if tried == before || tried-before > maxTries {
				t.Errorf("%d tries in one connection: %v", tried-before, err)
				return
			}
		}
	})
	for range 20 {
		c, err := w.dial("127.0.0.2", "alice", ssh.Password(goodPassword))
		check(t, err)
		files, err := sftp.NewClient(c)
		check(t, err)
		check(t, put(files, "file", "x"))
		_ = files.Close()
		_ = c.Close()
	}
	guessing.Wait()
	// One try more each time a delay is over.
	if looked := w.refused(refusedPassword); looked < freeTries || looked > 3*freeTries || looked+w.refused(refusedThrottled) < 1000 {
		t.Errorf("%d passwords were looked at, and %d not", looked, w.refused(refusedThrottled))
	}
	// Nobody guesses a key: it is good from there, too.
	c, err := w.dial("127.0.0.1", "bob", ssh.PublicKeys(w.bob))
	check(t, err)
	_ = c.Close()
}

func TestWhoSaysNothingIsEnded(t *testing.T) {
	w := newWorld(t, nil, func(s *Server) { s.handshakeTimeout = 100 * time.Millisecond })
	c, err := net.Dial("tcp", w.address)
	check(t, err)
	defer c.Close()
	check(t, c.SetReadDeadline(time.Now().Add(30*time.Second)))
	if _, err := io.ReadAll(c); err != nil {
		t.Error(err)
	}
	w.until("it is counted", func() bool { return w.refused(refusedHandshake) == 1 })
}

// A person compares the host's key, or looks for a password, for longer than a header may take.
func TestALoginMayTakeItsTime(t *testing.T) {
	w := newWorld(t, proxied, func(s *Server) { s.introductionTimeout = 100 * time.Millisecond })
	c, err := net.Dial("tcp", w.address)
	check(t, err)
	defer c.Close()
	_, err = c.Write(header(t, 2, "203.0.113.7:40000"))
	check(t, err)
	conn, _, _, err := ssh.NewClientConn(c, w.address, &ssh.ClientConfig{
		User: "alice", Auth: []ssh.AuthMethod{ssh.Password(goodPassword)},
		HostKeyCallback: func(string, net.Addr, ssh.PublicKey) error {
			<-time.After(3 * w.introductionTimeout)
			return nil
		},
	})
	check(t, err)
	check(t, conn.Close())
	if handshakeTimeout < time.Minute {
		t.Errorf("people have %s", handshakeTimeout)
	}
}

// Whoever hasn't logged in when the server is to end doesn't keep it from that.
func TestLoginsEndWithTheServer(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Drain = time.Hour }, func(s *Server) { s.handshakeTimeout, s.lastLogins = time.Hour, 100*time.Millisecond })
	c, err := net.Dial("tcp", w.address)
	check(t, err)
	defer c.Close()
	_, err = io.ReadFull(c, make([]byte, 4))
	check(t, err)
	w.end()
	within(t, "end", w.ended)
}

func TestConnectionsAreBounded(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.MaxConnections = 4 })
	login := func(from string) (*ssh.Client, *sftp.Client, error) {
		c, err := w.dial(from, "alice", ssh.Password(goodPassword))
		check(t, err)
		files, err := sftp.NewClient(c)
		if err != nil {
			_ = c.Close()
		}
		return c, files, err
	}
	for _, c := range []struct {
		from string
		ok   bool
	}{{"127.0.0.1", true}, {"127.0.0.1", true}, {"127.0.0.1", false}, {"127.0.0.2", true}, {"127.0.0.2", true}, {"127.0.0.3", false}} {
		conn, _, err := login(c.from)
		if (err == nil) != c.ok {
			t.Errorf("from %s: %v, want one: %t", c.from, err, c.ok)
		}
		defer func() { _ = conn.Close() }()
	}
	if a, b := w.refused(refusedAddress), w.refused(refusedConnections); a != 1 || b != 1 {
		t.Errorf("counted: %d of an address, %d in total", a, b)
	}
	// Those that don't log in.
	var silent []net.Conn
	for range handshakesOfAddress + 1 {
		c, err := net.Dial("tcp", w.address)
		check(t, err)
		defer c.Close()
		silent = append(silent, c)
	}
	closed := make(chan struct{}, len(silent))
	for _, c := range silent {
		go func() {
			_, _ = io.Copy(io.Discard, c)
			closed <- struct{}{}
		}()
	}
	within(t, "close one", closed)
	if w.refused(refusedAddress) != 2 {
		t.Errorf("%d of an address are counted", w.refused(refusedAddress))
	}
	for _, c := range silent {
		_ = c.Close()
	}
	for range handshakesOfAddress {
		<-closed
	}
}

// Connections that never log in keep nobody out: of the same address, or of others.
func TestWhoSaysNothingMakesRoom(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.MaxConnections = 2 }, func(s *Server) { s.handshakeTimeout = time.Hour })
	silent := func(from string, how int) {
		t.Helper()
		for range how {
			c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(t.Context(), "tcp", w.address)
			check(t, err)
			t.Cleanup(func() { _ = c.Close() })
			// It has been let in once the server has introduced itself.
			_, err = io.ReadFull(c, make([]byte, 4))
			check(t, err)
		}
	}
	logIn := func(from string) {
		t.Helper()
		c, err := w.dial(from, "alice", ssh.Password(goodPassword))
		check(t, err)
		check(t, c.Close())
	}
	silent("127.0.0.1", handshakesOfAddress)
	logIn("127.0.0.1")
	if n := w.refused(refusedAddress); n != 1 {
		t.Errorf("%d made room for one of their address", n)
	}
	silent("127.0.0.2", handshakesOfAddress)
	silent("127.0.0.3", 1)
	logIn("127.0.0.4")
	if n := w.refused(refusedConnections); n == 0 {
		t.Error("nobody made room for one of another address")
	}
	if n := w.refused(refusedHandshake); n != 0 {
		t.Errorf("%d are counted twice", n)
	}
}

// onceLoggedIn is a connection to which something happens while the server notes its login.
type onceLoggedIn struct {
	net.Conn
	happens func(net.Conn)
}

func (c onceLoggedIn) SetDeadline(at time.Time) error {
	if at.IsZero() {
		c.happens(c.Conn)
	}
	return c.Conn.SetDeadline(at)
}

// Whatever ends a connection just after its login, it is counted once: as a login, or as one that made room.
func TestALoginThatEndsAtOnceIsCountedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		happens         func(*world, net.Conn)
		logins, refused int
	}{
		"the client leaves": {func(_ *world, c net.Conn) { _ = c.Close() }, 1, 0},
		"it makes room for others": {func(w *world, c net.Conn) {
			for range handshakesOfAddress {
				_, why := w.lobby.admit(addressOf(c.RemoteAddr()), false, func() {})
				if why != "" {
					w.metrics.refused(why)
				}
			}
		}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			check(t, err)
			defer ln.Close()
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				if accepted, err := ln.Accept(); err == nil {
					w.client(t.Context(), onceLoggedIn{accepted, func(conn net.Conn) { c.happens(w, conn) }})
				}
			}()
			// The client may see its login, or that the connection has ended.
			client, err := ssh.Dial("tcp", ln.Addr().String(), &ssh.ClientConfig{
				User: "alice", Auth: []ssh.AuthMethod{ssh.Password(goodPassword)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
			})
			if err == nil {
				_ = client.Wait()
			}
			within(t, "end the session", ended)
			if n := testutil.ToFloat64(w.metrics.logins.WithLabelValues("password")); int(n) != c.logins {
				t.Errorf("%v logins are counted, want %d", n, c.logins)
			}
			if a, h := w.refused(refusedAddress), w.refused(refusedHandshake); a != c.refused || h != 0 {
				t.Errorf("%d made room and %d handshakes failed, want %d and none", a, h, c.refused)
			}
		})
	}
}
