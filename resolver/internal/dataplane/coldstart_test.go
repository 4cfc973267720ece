package dataplane

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/route"
)

const coldStart = "Cold-Start"

// marks makes a port of HTTP one that marks responses to those that were held.
func marks(p *route.Port) {
	speaksHTTP(p)
	p.MarksColdStarts = true
}

func TestTheFirstResponseToAHeldClientSaysThatTheStartWasCold(t *testing.T) {
	for name, more := range map[string]func(*rig){
		"with clients going straight to the server": func(*rig) {},
		"with all going through the resolver":       func(r *rig) { r.route.Balance = v1alpha1.BalanceSpread },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			more(r)
			address := r.serve("web", route.TCP, marks)
			c := dialTCP(t, address)
			write(t, c, request+request)
			r.queued(1)
			server := freeAddress(t, route.TCP)
			webServer(t, server, "I am up")
			r.backend(server, true)
			in := bufio.NewReader(c)
			for i, want := range []string{"true", ""} {
				if status, header, body := answer(t, in); status != 200 || header.Get(coldStart) != want || body != "I am up" {
					t.Errorf("request %d got %d, %v, %q; want the mark %q", i, status, header, body, want)
				}
			}
			// Who needs not wait isn't told.
			r.phase(v1alpha1.PhaseAwake)
			warm := dialTCP(t, address)
			write(t, warm, request)
			if _, header, body := answer(t, bufio.NewReader(warm)); header.Get(coldStart) != "" || body != "I am up" {
				t.Errorf("a client that didn't wait got %v, %q", header, body)
			}
		})
	}
}

func TestNothingIsAddedToResponsesByDefault(t *testing.T) {
	r := newRig(t)
	c := dialTCP(t, r.serve("web", route.TCP, speaksHTTP))
	write(t, c, request)
	r.queued(1)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, func(c *net.TCPConn) {
		_, _ = io.ReadFull(c, make([]byte, len(request)))
		_, _ = io.WriteString(c, response)
	})
	r.backend(server, true)
	if got, err := io.ReadAll(c); err != nil || string(got) != response {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestAMarkedResponseComesWholeAndATruncatedOneStaysTruncated(t *testing.T) {
	body := make([]byte, 8<<20)
	_, _ = rand.Read(body)
	head := fmt.Sprintf("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(body))
	marked := strings.Replace(head, "200 OK\r\n", "200 OK\r\nCold-Start: true\r\n", 1)
	for name, c := range map[string]struct {
		head, want string
		body       []byte
	}{
		"a whole one":            {head, marked, body},
		"one cut in its body":    {head, marked, body[:1000]},
		"one cut in its head":    {head[:60], marked[:60+len("Cold-Start: true\r\n")], nil},
		"one cut in its line":    {"HTTP/1.1 200 O", "HTTP/1.1 200 O", nil},
		"an upgrade":             {"HTTP/1.1 101 Switching Protocols\r\n\r\n", "HTTP/1.1 101 Switching Protocols\r\n\r\n", body},
		"something else, in all": {"\x00\x01\x02", "\x00\x01\x02", body},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			client := dialTCP(t, r.serve("web", route.TCP, marks))
			write(t, client, request)
			r.queued(1)
			server := freeAddress(t, route.TCP)
			listenTCP(t, server, func(s *net.TCPConn) {
				_, _ = io.ReadFull(s, make([]byte, len(request)))
				for _, b := range []byte(c.head) { // in as many pieces as the network likes
					_, _ = s.Write([]byte{b})
				}
				_, _ = s.Write(c.body)
				_ = s.CloseWrite()
			})
			r.backend(server, true)
			got, err := io.ReadAll(client)
			if want := append([]byte(c.want), c.body...); err != nil || !bytes.Equal(got, want) {
				t.Errorf("got %d bytes that begin with %.200q, %v; want %d", len(got), got, err, len(want))
			}
		})
	}
}

func TestAnUploadThatWaitedIsMarkedOnceItsBodyWasAskedFor(t *testing.T) {
	r := newRig(t)
	address := r.serve("web", route.TCP, marks)
	url := "http://" + address + "/upload"
	body := strings.Repeat("burrow..", 1<<17)
	put, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	put.Header.Set("Expect", "100-continue")
	type result struct {
		mark, body string
		err        error
	}
	done := make(chan result, 1)
	go func() {
		transport := &http.Transport{ExpectContinueTimeout: patience}
		defer transport.CloseIdleConnections()
		got, err := transport.RoundTrip(put)
		if err != nil {
			done <- result{err: err}
			return
		}
		all, err := io.ReadAll(got.Body)
		_ = got.Body.Close()
		done <- result{got.Header.Get(coldStart), string(all), err}
	}()
	r.queued(1)
	server := freeAddress(t, route.TCP)
	web(t, server, false, func(w http.ResponseWriter, got *http.Request) {
		n, _ := io.Copy(io.Discard, got.Body)
		_, _ = fmt.Fprint(w, n)
	})
	r.backend(server, true)
	if got := <-done; got.err != nil || got.mark != "true" || got.body != fmt.Sprint(len(body)) {
		t.Errorf("got %+v", got)
	}
}
