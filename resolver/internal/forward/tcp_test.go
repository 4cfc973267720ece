package forward

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
)

func pair(t *testing.T) (a, b *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	dialled, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = dialled.Close(), accepted.Close() })
	return dialled.(*net.TCPConn), accepted.(*net.TCPConn)
}

// Bulk changes how bytes are moved, and what follows it changes it back: all of it
// has to arrive, in order, and be counted, and so has the other side's answer.
func TestRelayMovesBulkAndMessages(t *testing.T) {
	client, inside := pair(t)
	outside, server := pair(t)
	var up, down atomic.Int64
	ended := make(chan error, 1)
	go func() {
		ended <- Relay(t.Context(), inside, outside, func(n int) { up.Add(int64(n)) }, func(n int) { down.Add(int64(n)) })
	}()
	bulk := make([]byte, 8<<20)
	for i := range bulk {
		bulk[i] = byte(i * i >> 7)
	}
	const rounds = 3
	sent := make(chan error, 1)
	go func() {
		for range rounds {
			if _, err := client.Write(bulk); err != nil {
				sent <- err
				return
			}
			// The server's answer comes only once it has all.
			if _, err := io.ReadFull(client, make([]byte, 4)); err != nil {
				sent <- err
				return
			}
		}
		sent <- client.CloseWrite()
	}()
	got := make([]byte, len(bulk))
	for round := range rounds {
		if _, err := io.ReadFull(server, got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, bulk) {
			t.Fatalf("other bytes came than were sent in round %d", round)
		}
		if _, err := server.Write([]byte("done")); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if n, err := server.Read(got); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("after the client's end: %d, %v", n, err)
	}
	if _, err := server.Write([]byte("bye")); err != nil {
		t.Fatal(err)
	}
	_ = server.Close()
	if rest, err := io.ReadAll(client); string(rest) != "bye" || err != nil {
		t.Errorf("the client got %q, %v", rest, err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if up.Load() != rounds*int64(len(bulk)) || down.Load() != rounds*4+3 {
		t.Errorf("%d bytes counted up, %d down", up.Load(), down.Load())
	}
}
