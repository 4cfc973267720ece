package dataplane

import (
	"bufio"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/route"
)

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
	requester := dialTCP(t, address)
	in := bufio.NewReader(requester)
	if err := askAgain(requester, in); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	asked := make(chan int, 1)
	go func() {
		n := 0
		defer func() { asked <- n }()
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for ; ; n++ {
			if err := askAgain(requester, in); err != nil {
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
	ended := func() float64 {
		return r.metric("dormouse_resolver_ended_clients_total", map[string]string{"end": "idle"})
	}
	// A client may hear of its end before that is counted.
	r.eventually("both are counted", func() bool { return ended() == 2 })
	r.never("another connection ends", 3500*time.Millisecond, func() bool { return ended() != 2 })
	close(stop)
	if n := <-asked; n < 10 { // more where the processors are free
		t.Errorf("a busy client was answered %d times", n)
	}
	for name, c := range busy {
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		if n, err := c.Read(make([]byte, 1)); n > 0 || !os.IsTimeout(err) {
			t.Errorf("%s: read %d, %v", name, n, err)
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
	}
	// They work, and end in their turn.
	write(t, busy["half an answer"], "o")
	expect(t, busy["half an answer"], "o")
	write(t, busy["a WebSocket"], "any\x00thing")
	expect(t, busy["a WebSocket"], "any\x00thing")
	// What comes to the resolver still is treated alike.
	late := ask(request, response)
	write(t, busy["nothing asked"], request)
	expect(t, busy["nothing asked"], response)
	write(t, busy["half a request"], "Host: a\r\n\r\n")
	expect(t, busy["half a request"], response)
	for _, c := range []net.Conn{late, busy["nothing asked"], busy["half a request"]} {
		expectEnd(t, c)
	}
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
	results := make(chan int, clients)
	for i := range clients {
		go func() {
			got := 0
			defer func() { results <- got }()
			c, err := net.Dial("tcp", address)
			if err != nil {
				return
			}
			defer func() { _ = c.Close() }()
			in := bufio.NewReader(c)
			// The second request comes around the time at which the connection ends.
			for _, pause := range []time.Duration{0, 1800*time.Millisecond + time.Duration(i)*50*time.Millisecond} {
				<-time.After(pause)
				if askAgain(c, in) != nil {
					return
				}
				got++
			}
		}()
	}
	answered := 0
	for range clients {
		answered += <-results
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
			t.Parallel()
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
			_ = got.Body.Close()
			if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
				t.Errorf("at the end came %q, %v", rest, err)
			}
			r.eventually("the connection was ended for being idle", func() bool {
				return r.metric("dormouse_resolver_ended_clients_total", map[string]string{"end": "idle"}) == 1
			})
		})
	}
}
