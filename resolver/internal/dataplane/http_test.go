package dataplane

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

const (
	probe    = "GET /healthz HTTP/1.1\r\nHost: lobby\r\n\r\n"
	request  = "GET / HTTP/1.1\r\nHost: lobby\r\n\r\n"
	response = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
)

// speaksHTTP makes a port one of HTTP that answers a probe.
func speaksHTTP(p *route.Port) {
	p.Protocol = v1alpha1.ProtocolHTTP
	p.Probes = []proto.Probe{{Method: "GET", Path: "/healthz", Status: 200, Body: "asleep\n"}}
}

// answer reads one answer.
func answer(t testing.TB, r *bufio.Reader) (status int, header http.Header, body string) {
	t.Helper()
	got, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(got.Body)
	_ = got.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	if got.Close { // the package takes the header out
		got.Header.Set("Connection", "close")
	}
	return got.StatusCode, got.Header, string(all)
}

// webServer answers each request that it reads with a text.
func webServer(t testing.TB, address, text string) {
	listenTCP(t, address, func(c *net.TCPConn) {
		r := bufio.NewReader(c)
		for {
			got, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, got.Body)
			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
		}
	})
}

func TestProbesAreAnsweredOnOneConnectionUntilARequestWakes(t *testing.T) {
	r := newRig(t)
	c := dialTCP(t, r.serve("web", route.TCP, speaksHTTP))
	in := bufio.NewReader(c)
	for range 2 {
		write(t, c, probe[:20])
		write(t, c, probe[20:])
		if status, _, body := answer(t, in); status != 200 || body != "asleep\n" {
			t.Fatalf("a probe got %d %q", status, body)
		}
	}
	write(t, c, probe+probe) // at once
	answer(t, in)
	answer(t, in)
	r.undisturbed()
	if got := r.answered(); got != 4 {
		t.Errorf("%v queries were answered, want 4", got)
	}
	// What comes with a probe and after it reaches the server, the probe doesn't.
	write(t, c, probe+request+"GET /healthz")
	answer(t, in)
	r.queued(1)
	got := make(chan string, 1)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, func(c *net.TCPConn) {
		b := make([]byte, len(request+"GET /healthz"))
		_, _ = io.ReadFull(c, b)
		got <- string(b)
	})
	r.backend(server, true)
	if first := <-got; first != request+"GET /healthz" {
		t.Errorf("the server got %q", first)
	}
}

func TestAProbesConnectionGoesOverToAServerThatCameUp(t *testing.T) {
	r := newRig(t)
	c := dialTCP(t, r.serve("web", route.TCP, speaksHTTP))
	in := bufio.NewReader(c)
	write(t, c, probe)
	answer(t, in)
	server := freeAddress(t, route.TCP)
	webServer(t, server, "I am up")
	r.phase(v1alpha1.PhaseAwake)
	r.backend(server, true)
	write(t, c, probe)
	if _, _, body := answer(t, in); body != "I am up" {
		t.Errorf("a probe of a server that is up got %q", body)
	}
	if n := r.operator.count(); n != 0 {
		t.Errorf("%d wake calls", n)
	}
}

func TestAProbeWithABodyEndsItsConnection(t *testing.T) {
	r := newRig(t)
	c := dialTCP(t, r.serve("web", route.TCP, speaksHTTP))
	// Whatever the body is, nobody takes it for the next request.
	write(t, c, "GET /healthz HTTP/1.1\r\nContent-Length: "+strconv.Itoa(len(request))+"\r\n\r\n"+request)
	in := bufio.NewReader(c)
	if _, header, body := answer(t, in); body != "asleep\n" || header.Get("Connection") != "close" {
		t.Errorf("got %q with %v", body, header)
	}
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("after it came %q, %v", rest, err)
	}
	r.undisturbed()
}

func TestHTTPClientsAreToldWhyTheyAreSentAway(t *testing.T) {
	r := newRig(t)
	r.route.Hold.Timeout, r.route.Hold.MaxConnections = 300*time.Millisecond, 1
	address := r.serve("web", route.TCP, speaksHTTP)
	held, over := dialTCP(t, address), dialTCP(t, address)
	write(t, held, request)
	r.queued(1)
	write(t, over, "GET / HTTP/1.1\r\nAccept: text/html\r\n\r\n")
	status, header, body := answer(t, bufio.NewReader(over))
	if status != 503 || header.Get("Retry-After") == "" || !strings.Contains(body, "lobby is waking up") || !strings.Contains(body, "<html") {
		t.Errorf("over the limit a browser got %d, %v, %q", status, header, body)
	}
	in := bufio.NewReader(held)
	status, header, body = answer(t, in)
	if status != 503 || header.Get("Retry-After") == "" || body != "lobby is waking up.\n" {
		t.Errorf("after the timeout a client got %d, %v, %q", status, header, body)
	}
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("after it came %q, %v", rest, err)
	}
	for _, reason := range []proto.Reason{proto.QueueFull, proto.TimedOut} {
		if got := r.refused(reason); got != 1 {
			t.Errorf("%v clients were refused for %s, want 1", got, reason)
		}
	}
}

func TestIdleConnectionsEndOnceNewOnesGoStraightToTheServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	address, other := r.serve("web", route.TCP, speaksHTTP), r.serve("game", route.TCP)
	server := freeAddress(t, route.TCP)
	// It answers what ends in a slash, and begins to answer what ends in a dot.
	listenTCP(t, server, func(c *net.TCPConn) {
		in := bufio.NewReader(c)
		for {
			got, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			text := response
			switch got.URL.Path {
			case "/begun":
				text = response[:len(response)-1]
			case "/endless":
				text = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: a\n\n"
			case "/socket":
				text = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
			}
			_, _ = io.WriteString(c, text)
			if text != response {
				echo(c)
				return
			}
		}
	})
	r.backend(server, true)
	ask := func(text, want string) net.Conn {
		c := dialTCP(t, address)
		write(t, c, text)
		expect(t, c, want)
		return c
	}
	idle := ask(request, response)
	twice := ask(request+request, response+response)
	busy := map[string]net.Conn{
		"half a request":   ask(request+"GET / HTTP/1.1\r\n", response),
		"half an answer":   ask("GET /begun HTTP/1.1\r\nHost: a\r\n\r\n", response[:len(response)-1]),
		"an event stream":  ask("GET /endless HTTP/1.1\r\nHost: a\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: a\n\n"),
		"a WebSocket":      ask("GET /socket HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\n\r\n", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"),
		"nothing asked":    dialTCP(t, address),
		"another protocol": dialTCP(t, other),
	}
	write(t, busy["another protocol"], request)
	expect(t, busy["another protocol"], response)
	r.eventually("all are carried", func() bool { return r.sessions().Sessions == 7 })
	r.never("a connection ends while new ones come here, too", 3500*time.Millisecond, func() bool { return r.sessions().Sessions != 7 })
	// One goes on asking meanwhile, and never has to ask again.
	stop := make(chan struct{})
	asked := make(chan int, 1)
	go func() {
		n := 0
		defer func() { asked <- n }()
		c, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for in := bufio.NewReader(c); ; n++ {
			if _, err := io.WriteString(c, request); err != nil {
				t.Errorf("a busy connection ended: %v", err)
				return
			}
			if got, err := http.ReadResponse(in, nil); err != nil {
				t.Errorf("a busy connection ended: %v", err)
				return
			} else if _, err := io.Copy(io.Discard, got.Body); err != nil {
				t.Errorf("a busy connection ended: %v", err)
				return
			}
			select {
			case <-ticker.C:
			case <-stop:
				return
			}
		}
	}()
	r.change(func(rt *route.Route) { rt.Phase, rt.Direct = v1alpha1.PhaseAwake, true })
	expectEnd(t, idle)
	expectEnd(t, twice)
	ended := func() float64 { return r.metric("dormouse_resolver_ended_idle_connections_total", nil) }
	if got := ended(); got != 2 {
		t.Errorf("%v connections were ended, want 2", got)
	}
	r.never("another connection ends", 3500*time.Millisecond, func() bool { return ended() != 2 })
	close(stop)
	if n := <-asked; n < 100 {
		t.Errorf("a busy client was answered %d times", n)
	}
	for name, c := range busy {
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		if n, err := c.Read(make([]byte, 1)); n > 0 || !isTimeout(err) {
			t.Errorf("%s: read %d, %v", name, n, err)
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
	}
	// They work, and end in their turn.
	write(t, busy["half an answer"], "o")
	expect(t, busy["half an answer"], "o")
	write(t, busy["a WebSocket"], "any\x00thing")
	expect(t, busy["a WebSocket"], "any\x00thing")
	write(t, busy["nothing asked"], request)
	expect(t, busy["nothing asked"], response)
	expectEnd(t, busy["nothing asked"])
	write(t, busy["half a request"], "Host: a\r\n\r\n")
	expect(t, busy["half a request"], response)
	expectEnd(t, busy["half a request"])
	// What comes to the resolver still is treated alike.
	late := ask(request, response)
	expectEnd(t, late)
}

func isTimeout(err error) bool {
	timeout, ok := err.(net.Error) //nolint:errorlint // the net package's own
	return ok && timeout.Timeout()
}

func TestARequestThatComesAsItsConnectionEndsIsAnsweredOrNeverSeen(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	address := r.serve("web", route.TCP, speaksHTTP)
	server := freeAddress(t, route.TCP)
	var seen atomic.Int64
	listenTCP(t, server, func(c *net.TCPConn) {
		in := bufio.NewReader(c)
		for {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			seen.Add(1)
			_, _ = io.WriteString(c, response)
		}
	})
	r.change(func(rt *route.Route) { rt.Phase, rt.Direct = v1alpha1.PhaseAwake, true })
	r.backend(server, true)
	const clients = 60
	type result struct{ sent, answered int }
	results := make(chan result, clients)
	for i := range clients {
		go func() {
			var got result
			defer func() { results <- got }()
			c, err := net.Dial("tcp", address)
			if err != nil {
				return
			}
			defer func() { _ = c.Close() }()
			in := bufio.NewReader(c)
			// The second request comes around the time at which the connection ends.
			for _, pause := range []time.Duration{0, 1800*time.Millisecond + time.Duration(i)*25*time.Millisecond} {
				<-time.After(pause)
				if _, err := io.WriteString(c, request); err != nil {
					return
				}
				got.sent++
				answer, err := http.ReadResponse(in, nil)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				got.answered++
			}
		}()
	}
	answered := 0
	for range clients {
		answered += (<-results).answered
	}
	if got := int(seen.Load()); got != answered {
		t.Errorf("the server was asked %d times, and clients saw %d answers", got, answered)
	}
	if answered <= clients || answered == 2*clients {
		t.Errorf("%d answers for %d clients: nobody came as a connection ended", answered, clients)
	}
}

func TestBulkOnAFollowedConnectionArrivesAndEndsInQuiet(t *testing.T) {
	t.Parallel()
	const size = 64 << 20
	sent := make([]byte, size)
	_, _ = rand.Read(sent)
	want := sha256.Sum256(sent)
	for name, head := range map[string]string{
		"a length": "HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(size) + "\r\n\r\n",
		"chunks":   "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			address := r.serve("web", route.TCP, speaksHTTP)
			server := freeAddress(t, route.TCP)
			listenTCP(t, server, func(c *net.TCPConn) {
				in := bufio.NewReader(c)
				got, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				h := sha256.New()
				_, _ = io.Copy(h, got.Body)
				if [32]byte(h.Sum(nil)) != want {
					_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
					return
				}
				_, _ = io.WriteString(c, head)
				if name == "a length" {
					_, _ = c.Write(sent)
				} else {
					for rest := sent; len(rest) > 0; {
						n := min(len(rest), 1<<20)
						_, _ = fmt.Fprintf(c, "%x\r\n", n)
						_, _ = c.Write(rest[:n])
						_, _ = io.WriteString(c, "\r\n")
						rest = rest[n:]
					}
					_, _ = io.WriteString(c, "0\r\n\r\n")
				}
				_, _ = io.Copy(io.Discard, in)
			})
			r.change(func(rt *route.Route) { rt.Phase, rt.Direct = v1alpha1.PhaseAwake, true })
			r.backend(server, true)
			c := dialTCP(t, address)
			go func() {
				_, _ = io.WriteString(c, "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: "+strconv.Itoa(size)+"\r\n\r\n")
				_, _ = c.Write(sent)
			}()
			in := bufio.NewReader(c)
			got, err := http.ReadResponse(in, nil)
			if err != nil || got.StatusCode != 200 {
				t.Fatalf("got %v, %v", got, err)
			}
			h := sha256.New()
			if _, err := io.Copy(h, got.Body); err != nil || [32]byte(h.Sum(nil)) != want {
				t.Errorf("got something else: %v", err)
			}
			if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
				t.Errorf("at the end came %q, %v", rest, err)
			}
			r.eventually("the connection was ended for being idle", func() bool {
				return r.metric("dormouse_resolver_ended_idle_connections_total", nil) == 1
			})
		})
	}
}
