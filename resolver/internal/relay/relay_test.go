package relay

import (
	"bytes"
	"errors"
	"io"
	"sync/atomic"
	"testing"
)

// Bulk changes how bytes are moved, and what follows it changes it back: all of it
// has to arrive, in order, and be counted, and so has the other side's answer.
func TestRelayMovesBulkAndMessages(t *testing.T) {
	client, inside := connected(t)
	outside, server := connected(t)
	var up, down atomic.Int64
	ended := make(chan Ended, 1)
	go func() {
		ended <- Run(t.Context(), inside, outside,
			Options{ToServer: func(n int) { up.Add(int64(n)) }, ToClient: func(n int) { down.Add(int64(n)) }}, nil)
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
	if e := <-ended; e.Why != ByClient || e.Err != nil {
		t.Errorf("it ended with %+v, want by the client", e)
	}
	if up.Load() != rounds*int64(len(bulk)) || down.Load() != rounds*4+3 {
		t.Errorf("%d bytes counted up, %d down", up.Load(), down.Load())
	}
}
