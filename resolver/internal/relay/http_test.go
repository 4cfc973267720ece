package relay

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"dormouse.dev/dormouse/resolver/internal/loop"
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
	begun, ended := make(chan *Relay, 1), make(chan Ended, 1)
	go func() {
		ended <- Run(t.Context(), inside, outside, Options{Exchange: http1.NewExchange()}, func(r *Relay) { begun <- r })
	}()
	r := <-begun
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
	endIfIdle := func(least time.Duration) {
		r.EndIfIdle(least)
		loop.Settle()
	}
	for range 3 {
		say(client, server, request)
		endIfIdle(1) // the answer is to come
		say(server, client, response)
		endIfIdle(time.Hour)
	}
	say(client, server, request)
	say(server, client, response)
	deadline := time.After(10 * time.Second)
	for {
		endIfIdle(time.Millisecond)
		select {
		case e := <-ended:
			if e.Why != ByIdle || e.Err != nil {
				t.Errorf("it ended with %+v", e)
			}
			if n, err := client.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
				t.Errorf("the client read %d bytes, %v; want the end", n, err)
			}
			return
		case <-deadline:
			t.Fatal("it never ended")
		default:
		}
	}
}

func BenchmarkBody(b *testing.B) {
	const size = 64 << 20
	head := "HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(size) + "\r\n\r\n"
	body := bytes.Repeat([]byte("burrow.."), size/8)
	for name, relay := range map[string]func(client, server *net.TCPConn){
		"plain": func(client, server *net.TCPConn) { Run(b.Context(), client, server, Options{}, nil) },
		"followed": func(client, server *net.TCPConn) {
			Run(b.Context(), client, server, Options{Exchange: http1.NewExchange()}, nil)
		},
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
