package forward

import (
	"bytes"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"dormouse.dev/dormouse/resolver/internal/proto/http1"
)

// connected are the two ends of a connection.
func connected(b testing.TB) (dialled, accepted *net.TCPConn) {
	b.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	one, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	other, err := ln.Accept()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = one.Close(), other.Close() })
	return one.(*net.TCPConn), other.(*net.TCPConn)
}

func TestAConnectionThatIsNotQuietIsNotEnded(t *testing.T) {
	client, inside := connected(t)
	outside, server := connected(t)
	h := NewHTTP(inside, outside, http1.NewExchange(), nil, nil)
	ended := make(chan bool, 1)
	go func() {
		quiet, _ := h.Relay(t.Context())
		ended <- quiet
	}()
	const request, response = "GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n"
	say := func(from, to net.Conn, text string) {
		t.Helper()
		got := make([]byte, len(text))
		if _, err := io.WriteString(from, text); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(to, got); err != nil || string(got) != text {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	for range 3 {
		say(client, server, request)
		// Whoever thinks that it is quiet by now is wrong.
		_ = inside.SetReadDeadline(time.Unix(1, 0))
		say(server, client, response)
		h.EndIfQuiet(time.Now())
		_ = inside.SetReadDeadline(time.Unix(1, 0))
	}
	h.EndIfQuiet(time.Now().Add(time.Hour)) // which is not now
	say(client, server, request)
	say(server, client, response)
	deadline := time.Now().Add(10 * time.Second)
	for ticker := time.NewTicker(10 * time.Millisecond); ; <-ticker.C {
		h.EndIfQuiet(time.Now())
		select {
		case quiet := <-ended:
			if !quiet {
				t.Error("it ended for another reason")
			}
			return
		default:
			if time.Now().After(deadline) {
				t.Fatal("it never ended")
			}
		}
	}
}

func BenchmarkBody(b *testing.B) {
	const size = 64 << 20
	head := "HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(size) + "\r\n\r\n"
	body := bytes.Repeat([]byte("burrow.."), size/8)
	for name, relay := range map[string]func(client, server *net.TCPConn){
		"plain":    func(client, server *net.TCPConn) { _ = Relay(b.Context(), client, server, nil, nil) },
		"followed": func(client, server *net.TCPConn) { _, _ = NewHTTP(client, server, http1.NewExchange(), nil, nil).Relay(b.Context()) },
	} {
		b.Run(name, func(b *testing.B) {
			client, inside := connected(b)
			outside, server := connected(b)
			go relay(inside, outside)
			b.SetBytes(size)
			for b.Loop() {
				if _, err := io.WriteString(client, "GET / HTTP/1.1\r\n\r\n"); err != nil {
					b.Fatal(err)
				}
				if _, err := io.ReadFull(server, make([]byte, len("GET / HTTP/1.1\r\n\r\n"))); err != nil {
					b.Fatal(err)
				}
				go func() {
					_, _ = io.WriteString(server, head)
					_, _ = server.Write(body)
				}()
				if _, err := io.CopyN(io.Discard, client, int64(len(head)+size)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
