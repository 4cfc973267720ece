package relay

import (
	"context"
	"net"
	"testing"
	"time"
	"unsafe"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/loop"
)

// The end of a context cuts all relays of its group that are still there, and each that comes
// afterwards.
func TestAGroupIsCut(t *testing.T) {
	t.Parallel()
	ctx, cut := context.WithCancel(t.Context())
	group := NewGroup(ctx)
	start := func() (client, server net.Conn, ended chan Ended) {
		client, inside := connected(t)
		outside, server := connected(t)
		var fds [2]int
		for i, c := range []*net.TCPConn{inside, outside} {
			fd, err := conn.Take(c)
			if err != nil {
				t.Fatal(err)
			}
			fds[i] = fd
		}
		ended = make(chan Ended, 1)
		Start(group, loop.Next(), fds[0], fds[1], &Options{}, func(e Ended) { ended <- e })
		return client, server, ended
	}
	await := func(which int, ended chan Ended, want Why) {
		t.Helper()
		select {
		case e := <-ended:
			if e.Why != want {
				t.Errorf("relay %d ended with %+v, want by %s", which, e, want)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("relay %d never ended", which)
		}
	}
	var all []chan Ended
	for i := range 7 {
		client, server, ended := start()
		all = append(all, ended)
		t.Cleanup(func() { _, _ = client.Close(), server.Close() })
		// The first, the last and some between them end before.
		if i%3 == 0 {
			_, _ = client.Close(), server.Close()
		}
	}
	for i := 0; i < len(all); i += 3 {
		await(i, all[i], ByClient)
	}
	cut()
	for i, ended := range all {
		if i%3 != 0 {
			await(i, ended, ByCut)
		}
	}
	_, _, ended := start()
	await(len(all), ended, ByCut)
	if group.first != nil {
		t.Error("the group still has relays")
	}
}

// Ten thousand relays may be open at once. A new field has to be worth its bytes.
func TestARelayIsSmall(t *testing.T) {
	t.Parallel()
	const most = 384 // a size class of the allocator
	if size := unsafe.Sizeof(Relay{}); size > most {
		t.Errorf("a relay takes %d bytes, want at most %d", size, most)
	}
}
