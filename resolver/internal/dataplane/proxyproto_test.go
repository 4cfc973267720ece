package dataplane

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	proxyproto "github.com/pires/go-proxyproto"

	"dormouse.dev/dormouse/api/v1alpha1"
	minecraftwire "dormouse.dev/dormouse/internal/gameproto/minecraft"
	"dormouse.dev/dormouse/resolver/internal/dataplane/service"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
	"dormouse.dev/dormouse/test/env"
)

// behind lets connections from an address begin with a header, and sends servers one.
func (r *rig) behind(trusted string) {
	r.change(func(rt *route.Route) {
		rt.Balance = v1alpha1.BalanceSpread
		rt.Proxy = route.Proxy{Send: true}
		if trusted != "" {
			rt.Proxy.Trusted = []netip.Prefix{netip.MustParsePrefix(trusted)}
		}
	})
}

// header is one of the PROXY protocol as a load balancer sends it.
func header(t *testing.T, version byte, source, destination string) string {
	t.Helper()
	tcp := func(text string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text)) }
	b, err := proxyproto.HeaderProxyFromAddrs(version, tcp(source), tcp(destination)).Format()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// localHeader is one of a load balancer's own connection.
const localHeader = "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"

// named answers each connection with what its header says, and then echoes.
func named(c *net.TCPConn) {
	reader := bufio.NewReader(c)
	h, err := proxyproto.Read(reader)
	if err != nil {
		_, _ = fmt.Fprintf(c, "no header: %v", err)
		return
	}
	if h.Command.IsLocal() {
		_, _ = io.WriteString(c, "local;")
	} else {
		_, _ = fmt.Fprintf(c, "%d from %s to %s;", h.Version, h.SourceAddr, h.DestinationAddr)
	}
	_, _ = io.Copy(c, reader)
}

// dialFrom connects from another address of this machine.
func dialFrom(t *testing.T, source, address string) *net.TCPConn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	c, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(3 * patience))
	return c.(*net.TCPConn)
}

func TestServersAreToldWhereClientsAre(t *testing.T) {
	const lb, other = "127.0.0.3/32", "127.0.0.4"
	four := func(t *testing.T, version byte) string {
		return header(t, version, "203.0.113.7:40001", "198.51.100.2:25565")
	}
	cases := map[string]struct {
		from   string
		header func(t *testing.T) string
		// want is what the server is told; empty: where the socket says.
		want string
	}{
		"by a load balancer": {
			from: "127.0.0.3", header: func(t *testing.T) string { return four(t, 2) },
			want: "2 from 203.0.113.7:40001 to 198.51.100.2:25565;",
		},
		"by one that speaks version 1": {
			from: "127.0.0.3", header: func(t *testing.T) string { return four(t, 1) },
			want: "2 from 203.0.113.7:40001 to 198.51.100.2:25565;",
		},
		"over IPv6": {
			from: "127.0.0.3", header: func(t *testing.T) string { return header(t, 2, "[2001:db8::7]:40001", "[2001:db8::2]:25565") },
			want: "2 from [2001:db8::7]:40001 to [2001:db8::2]:25565;",
		},
		"by themselves":                         {from: other, header: func(*testing.T) string { return "" }},
		"and what the untrusted say is no word": {from: other, header: func(t *testing.T) string { return four(t, 2) }},
	}
	for name, tc := range cases {
		for _, asleep := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, asleep=%t", name, asleep), func(t *testing.T) {
				r := newRig(t)
				address := r.serve("game", route.TCP)
				r.behind(lb)
				server := freeAddress(t, route.TCP)
				if !asleep {
					r.phase(v1alpha1.PhaseAwake)
					listenTCP(t, server, named)
					r.backend(server, true)
				}
				said := tc.header(t)
				c := dialFrom(t, tc.from, address)
				// A slow network brings it byte by byte; version 1 must come at once.
				chunks := []string{said}
				if strings.HasPrefix(said, "\r\n") {
					chunks = strings.Split(said, "")
				}
				for _, chunk := range chunks {
					write(t, c, chunk)
				}
				write(t, c, "hello")
				if asleep {
					r.queued(1)
					listenTCP(t, server, named)
					r.backend(server, true)
				}
				want := tc.want + "hello"
				if tc.want == "" {
					// It goes to the server like the rest.
					want = fmt.Sprintf("2 from %s to %s;%shello", c.LocalAddr(), address, said)
				}
				expect(t, c, want)
				write(t, c, "more")
				expect(t, c, "more")
				// The server gets the client's bytes, and no header counts as such.
				sent := len(want) - len(tc.want) + 4
				if tc.want == "" {
					sent = len(said) + len("hello") + 4
				}
				r.eventually("each byte is counted once", func() bool {
					return r.metric("dormouse_resolver_bytes_total", map[string]string{"direction": "to_server"}) == float64(sent)
				})
				if used := r.server.Held.Used(); used != 0 {
					t.Errorf("%d bytes are held still", used)
				}
			})
		}
	}
}

func TestWithoutAHeaderALoadBalancersConnectionIsRefused(t *testing.T) {
	cases := map[string]struct {
		sent    string
		refused float64
	}{
		"another protocol":       {"GET / HTTP/1.1\r\n\r\n", 1},
		"half a header":          {"\r\n\r\n\x00\r\nQUIT\n\x21", 1},
		"a broken one":           {"\r\n\r\n\x00\r\nQUIT\n\x21\x13\x00\x0c123456789012", 1},
		"one of no version":      {"\r\n\r\n\x00\r\nQUIT\n\x31\x11\x00\x0c123456789012", 1},
		"one that is too long":   {"\r\n\r\n\x00\r\nQUIT\n\x21\x11\xff\xff" + strings.Repeat("x", 100), 1},
		"version 1 without end":  {"PROXY TCP4 " + strings.Repeat("1", 200), 1},
		"a look at the port":     {"", 0},
		"a byte and no more":     {"\r", 1},
		"UDP over a connection?": {"\r\n\r\n\x00\r\nQUIT\n\x21\x00\x00\x00", 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			address := r.serve("game", route.TCP)
			r.behind("127.0.0.0/8")
			c := dialTCP(t, address)
			write(t, c, tc.sent)
			_ = c.CloseWrite()
			expectGone(t, c)
			r.eventually("it is counted", func() bool { return r.refused("no_proxy_header") == tc.refused })
			r.undisturbed()
			if used := r.server.Held.Used(); used != 0 {
				t.Errorf("%d bytes are held still", used)
			}
		})
	}
}

// Connections that may begin with a header, and say nothing, take a bounded number of places, and make room for others.
func TestWhoSendsNoHeaderKeepsNobodyOut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	address := r.serve("game", route.TCP)
	r.behind("127.0.0.0/8")
	const places, more = 100, 20
	r.change(func(rt *route.Route) { rt.Hold.MaxConnections = places })
	files := r.server.Usage().Files
	var silent []*net.TCPConn
	for range places + more {
		silent = append(silent, dialTCP(t, address))
	}
	r.eventually("the oldest made room", func() bool {
		return r.refused(proto.Evicted) == more && r.server.Usage().Files == files+places*service.FilesOfTCP
	})
	write(t, dialTCP(t, address), header(t, 2, "192.0.2.7:4242", "192.0.2.9:25565"))
	r.queued(1)
	for _, c := range silent {
		_ = c.SetLinger(0)
		_ = c.Close()
	}
	r.eventually("only the player's files are taken", func() bool { return r.server.Usage().Files == files+service.FilesOfTCP })
}

// A load balancer looks whether the port is served with connections of its own.
func TestALoadBalancersProbeIsNoClient(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP)
	r.behind("127.0.0.0/8")
	c := dialTCP(t, address)
	write(t, c, localHeader+"are you there?")
	// It sees an end, and no reset, which some would take for a failure.
	expectEnd(t, c)
	r.undisturbed()

	server := freeAddress(t, route.TCP)
	listenTCP(t, server, named)
	r.phase(v1alpha1.PhaseAwake)
	r.backend(server, true)
	client := dialTCP(t, address)
	write(t, client, header(t, 2, "203.0.113.7:40001", "198.51.100.2:25565"))
	expect(t, client, "2 from 203.0.113.7:40001 to 198.51.100.2:25565;")
	_ = client.Close()
	r.eventually("the client is gone", func() bool { return r.sessions().Sessions == 0 })
	began := time.Now()
	c = dialTCP(t, address)
	write(t, c, localHeader+"are you there?")
	expect(t, c, "local;are you there?")
	if !r.idleSince(began) {
		t.Error("a probe keeps the server awake")
	}
}

// What the resolver asks a server for itself begins with a header, too. It has an address, without
// which many servers close the connection.
func TestAServerThatWantsHeadersIsAskedWithOne(t *testing.T) {
	own := minecraftwire.Status{Version: "1.21.4", Protocol: 769, Capacity: 33}
	said, _ := minecraftwire.AppendStatus(nil, own)
	serve := func(t *testing.T) (server string) {
		server = freeAddress(t, route.TCP)
		listenTCP(t, server, func(c *net.TCPConn) {
			reader := bufio.NewReader(c)
			h, err := proxyproto.Read(reader)
			switch {
			case err != nil, h.Command.IsLocal(), h.DestinationAddr == nil:
			case h.SourceAddr.String() == c.RemoteAddr().String() && h.DestinationAddr.String() == server:
				_, _ = c.Write(said)
				_, _ = io.Copy(io.Discard, reader)
			default:
				_, _ = io.Copy(c, reader)
			}
		})
		return server
	}
	game := func(p *route.Port) { p.Protocol = v1alpha1.ProtocolMinecraft }
	status := recorded(t, v1alpha1.ProtocolMinecraft, "status_765")
	t.Run("before a client that waited", func(t *testing.T) {
		r := newRig(t)
		address := r.serve("game", route.TCP, game)
		r.behind("")
		login := recorded(t, v1alpha1.ProtocolMinecraft, "login_765")
		c := dialTCP(t, address)
		write(t, c, login)
		r.queued(1)
		r.backend(serve(t), true)
		expect(t, c, login)
	})
	t.Run("for what is told while it sleeps", func(t *testing.T) {
		r := newRig(t)
		address := r.serve("game", route.TCP, game, probed)
		r.behind("")
		r.backend(serve(t), true)
		r.phase(v1alpha1.PhaseAwake)
		r.phase(v1alpha1.PhaseAsleep)
		want := own
		want.Description = "Asleep. Join to wake it up."
		r.eventually("the list shows what it said", func() bool {
			c := dialTCP(t, address)
			defer func() { _ = c.Close() }()
			write(t, c, status)
			return minecraftStatus(t, c) == want
		})
	})
	t.Run("for a client's query", func(t *testing.T) {
		r := newRig(t)
		r.server.QueryTimeout = time.Minute
		address := r.serve("game", route.TCP, game, probed)
		r.behind("")
		r.backend(serve(t), true)
		r.phase(v1alpha1.PhaseAwake)
		c := dialTCP(t, address)
		write(t, c, status)
		if got := minecraftStatus(t, c); got != own {
			t.Errorf("got %+v, want %+v", got, own)
		}
	})
}

// haproxy runs HAProxy with a configuration until the test ends.
func haproxy(t *testing.T, listen string) {
	t.Helper()
	const program = "/usr/sbin/haproxy"
	if testing.Short() {
		t.Skip("it installs a package")
	}
	mayInstall(t, env.InstallDebian(t.Context(), "haproxy", program, os.Stderr))
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	text := "global\n maxconn 100\ndefaults\n mode tcp\n timeout connect 5s\n timeout client 1m\n timeout server 1m\n" + listen
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "-db", "-q", "-f", file)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
}

func TestHAProxyAndTheResolverTellEachOtherWhereClientsAre(t *testing.T) {
	r := newRig(t)
	address := r.serve("game", route.TCP)
	r.behind("127.0.0.0/8")
	front, back, server := freeAddress(t, route.TCP), freeAddress(t, route.TCP), freeAddress(t, route.TCP)
	// What takes the resolver's headers passes them on in words.
	haproxy(t, fmt.Sprintf(`
listen front
 bind %s
 server resolver %s send-proxy-v2 check check-send-proxy inter 20ms
listen back
 bind %s accept-proxy
 server game %s send-proxy
`, front, address, back, server))
	listenTCP(t, server, func(c *net.TCPConn) {
		reader := bufio.NewReader(c)
		line, err := reader.ReadString('\n')
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, line)
		_, _ = io.Copy(c, reader)
	})
	connect := func() *net.TCPConn {
		var c net.Conn
		r.eventually("HAProxy listens", func() (ok bool) {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
			var err error
			c, err = d.DialContext(t.Context(), "tcp", front)
			return err == nil
		})
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(3 * patience))
		return c.(*net.TCPConn)
	}
	header := func(c *net.TCPConn) string {
		at := netip.MustParseAddrPort(c.LocalAddr().String())
		return fmt.Sprintf("PROXY TCP4 127.0.0.9 127.0.0.1 %d %s\r\n", at.Port(), portOf(t, front))
	}
	// Its probes come all the time and wake nobody.
	r.eventually("HAProxy has looked a few times", func() bool {
		return r.metric("dormouse_resolver_clients_total", nil) >= 3
	})
	r.undisturbed()
	c := connect()
	const size = 1 << 20
	sent := strings.Repeat("0123456789abcdef", size/16)
	write(t, c, "first")
	r.queued(1)
	r.backend(back, true)
	expect(t, c, header(c)+"first")
	go func() { _, _ = io.WriteString(c, sent) }()
	expect(t, c, sent)
	r.phase(v1alpha1.PhaseAwake)
	c = connect()
	write(t, c, "second")
	expect(t, c, header(c)+"second")
	r.eventually("the clients' bytes are counted", func() bool {
		return r.metric("dormouse_resolver_bytes_total", map[string]string{"direction": "to_server"}) == float64(len("first")+size+len("second"))
	})
}
