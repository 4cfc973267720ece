package files

import (
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	proxyproto "github.com/pires/go-proxyproto"
	"golang.org/x/crypto/ssh"
)

// through logs alice in by a connection that begins with these bytes.
func (w *world) through(begin []byte, password string) error {
	w.t.Helper()
	c, err := (&net.Dialer{}).DialContext(w.t.Context(), "tcp", w.address)
	check(w.t, err)
	w.t.Cleanup(func() { _ = c.Close() })
	_, err = c.Write(begin)
	check(w.t, err)
	conn, channels, requests, err := ssh.NewClientConn(c, w.address, &ssh.ClientConfig{
		User: "alice", Auth: []ssh.AuthMethod{ssh.Password(password)}, HostKeyCallback: ssh.InsecureIgnoreHostKey(),
	})
	if err != nil {
		return err
	}
	client := ssh.NewClient(conn, channels, requests)
	w.t.Cleanup(func() { _ = client.Close() })
	return nil
}

func header(t *testing.T, version byte, from string) []byte {
	t.Helper()
	source := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from))
	target := net.TCPAddr{IP: net.ParseIP("198.51.100.1"), Port: 22}
	if source.AddrPort().Addr().Is6() {
		target.IP = net.ParseIP("2001:db8::1")
	}
	b, err := proxyproto.HeaderProxyFromAddrs(version, source, &target).Format()
	check(t, err)
	return b
}

func proxied(o *Options) { o.ProxyProtocol = true }

func TestTheHeaderSaysWhereTheClientIs(t *testing.T) {
	w := newWorld(t, proxied)
	for range freeTries {
		if w.through(header(t, 2, "203.0.113.7:40000"), "wrong") == nil {
			t.Fatal("a wrong password is good")
		}
	}
	if w.through(header(t, 2, "203.0.113.7:40001"), "wrong") == nil || w.refused(refusedThrottled) == 0 && w.refused(refusedPassword) != freeTries {
		t.Error("wrong passwords of the client's address don't count")
	}
	if w.through(header(t, 2, "203.0.113.7:40001"), goodPassword) == nil {
		t.Error("an address whose passwords are held up has logged in")
	}
	check(t, w.through(header(t, 2, "203.0.113.8:40002"), goodPassword))
	check(t, w.through(header(t, 2, "[2001:db8::7]:40003"), goodPassword))
	for _, at := range []string{"203.0.113.8:40002", "[2001:db8::7]:40003"} {
		w.until("the log has "+at, func() bool { return strings.Contains(w.logs(), at) })
	}
}

func TestAConnectionWithoutAHeaderIsRefused(t *testing.T) {
	w := newWorld(t, proxied, func(s *Server) { s.introductionTimeout = 100 * time.Millisecond })
	local, err := (&proxyproto.Header{Version: 2, Command: proxyproto.LOCAL, TransportProtocol: proxyproto.UNSPEC}).Format()
	check(t, err)
	datagrams := header(t, 2, "203.0.113.7:40000")
	datagrams[13] = datagrams[13]&0xF0 | 2
	for name, c := range map[string]struct {
		begin   []byte
		counted int
	}{
		"SSH at once":             {nil, 1},
		"another text":            {[]byte("GET / HTTP/1.1\r\n\r\n"), 1},
		"the first version":       {header(t, 1, "203.0.113.7:40000"), 1},
		"a client of datagrams":   {datagrams, 1},
		"half of a header":        {header(t, 2, "203.0.113.7:40000")[:14], 1},
		"a check of the port":     {local, 0},
		"a check and then a user": {append(local, "SSH-2.0-x\r\n"...), 0},
	} {
		before := w.refused(refusedProxy)
		if w.through(c.begin, goodPassword) == nil {
			t.Errorf("%s: it has logged in", name)
		}
		if got := w.refused(refusedProxy) - before; got != c.counted {
			t.Errorf("%s: %d refusals, want %d", name, got, c.counted)
		}
	}
	// Who says nothing is closed after a while.
	before := w.refused(refusedProxy)
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.address)
	check(t, err)
	defer c.Close()
	_, _ = io.Copy(io.Discard, c)
	if got := w.refused(refusedProxy) - before; got != 1 {
		t.Errorf("silence: %d refusals, want 1", got)
	}
}

// All of them have the resolver's address until their header is there.
func TestConnectionsWithoutAHeaderAreBounded(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.ProxyProtocol, o.MaxConnections = true, 2 }, func(s *Server) { s.introductionTimeout = time.Hour })
	for range handshakesPerSession*2 + 1 {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.address)
		check(t, err)
		defer c.Close()
	}
	w.until("one makes room", func() bool { return w.refused(refusedConnections) == 1 })
	w.introductions.mu.Lock()
	defer w.introductions.mu.Unlock()
	if n := len(w.introductions.all); n != handshakesPerSession*2 {
		t.Errorf("%d wait for their header", n)
	}
}

// Somebody who passes the resolver by, and says nothing, keeps nobody out who comes through it.
func TestConnectionsThatSayNothingMakeRoom(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.ProxyProtocol, o.MaxConnections = true, 1 })
	for range handshakesPerSession {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.address)
		check(t, err)
		defer c.Close()
	}
	w.until("all of them wait", func() bool {
		w.introductions.mu.Lock()
		defer w.introductions.mu.Unlock()
		return len(w.introductions.all) == handshakesPerSession
	})
	check(t, w.through(header(t, 2, "203.0.113.7:40000"), goodPassword))
	if room, refused := w.refused(refusedConnections), w.refused(refusedProxy); room != 1 || refused != 0 {
		t.Errorf("%d made room, and %d had no header, want 1 and 0", room, refused)
	}
}

func TestClientsOfOtherNetworksAreClosed(t *testing.T) {
	allow := []netip.Prefix{netip.MustParsePrefix("203.0.113.0/28"), netip.MustParsePrefix("2001:db8:1::/48")}
	w := newWorld(t, func(o *Options) { o.ProxyProtocol, o.Allow = true, allow })
	for from, ok := range map[string]bool{
		"203.0.113.7:1": true, "203.0.113.17:1": false, "[2001:db8:1::7]:1": true, "[2001:db8:2::7]:1": false, "[::ffff:203.0.113.7]:1": true,
	} {
		before := w.refused(refusedNetwork)
		err := w.through(header(t, 2, from), goodPassword)
		if (err == nil) != ok {
			t.Errorf("%s: login: %v, want it: %t", from, err, ok)
		}
		if counted := w.refused(refusedNetwork) - before; counted == 1 == ok {
			t.Errorf("%s: %d refusals", from, counted)
		}
	}
	// Without a header it is the connection's own address that counts.
	w = newWorld(t, func(o *Options) { o.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")} })
	if _, err := w.dial("127.0.0.1", "alice", ssh.Password(goodPassword)); err == nil || w.refused(refusedNetwork) != 1 {
		t.Errorf("of another network: login %v, %d refusals", err, w.refused(refusedNetwork))
	}
	_, err := w.dial("127.0.0.2", "alice", ssh.Password(goodPassword))
	check(t, err)
}

func TestAConnectionWhoseHeaderIsThereMakesRoomForAnother(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.ProxyProtocol, o.MaxConnections = true, 1 })
	for range 2 * handshakesPerSession {
		if w.through(header(t, 1, "203.0.113.7:40000"), goodPassword) == nil {
			t.Fatal("the first version of the header is good")
		}
	}
	check(t, w.through(header(t, 2, "203.0.113.7:40000"), goodPassword))
	if n := w.refused(refusedConnections); n != 0 {
		t.Errorf("%d were too many", n)
	}
}
