package dataplane

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
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

// askAgain asks and reads the answer.
func askAgain(c net.Conn, in *bufio.Reader) error {
	if _, err := io.WriteString(c, request); err != nil {
		return err
	}
	got, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, got.Body)
	_ = got.Body.Close()
	return err
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
	// The last is counted once it is written.
	r.eventually("four queries are counted", func() bool { return r.answered() == 4 })
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
	c := dialTCP(t, r.serve("web", route.TCP, speaksHTTP, probed))
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
