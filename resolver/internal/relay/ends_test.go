package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"dormouse.dev/dormouse/resolver/internal/conn"
	"dormouse.dev/dormouse/resolver/internal/loop"
	"dormouse.dev/dormouse/resolver/internal/proto/http1"
)

// relayed is a client and a server with a relay between them.
type relayed struct {
	client, server *net.TCPConn
	ended          chan Ended
}

func relay(t *testing.T, ctx context.Context, o Options) relayed { //nolint:revive // whose test it is comes first
	t.Helper()
	client, inside := connected(t)
	outside, server := connected(t)
	r := relayed{client, server, make(chan Ended, 1)}
	go func() { r.ended <- Run(ctx, inside, outside, o, nil) }()
	for _, c := range []net.Conn{client, server} {
		_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	}
	return r
}

func (r relayed) end(t *testing.T) Ended {
	t.Helper()
	select {
	case e := <-r.ended:
		return e
	case <-time.After(2 * time.Minute):
		t.Fatal("the relay never ended")
		return Ended{}
	}
}

// both runs a test for a relay that is followed, and for one that is not.
func both(t *testing.T, test func(t *testing.T, o Options)) {
	t.Helper()
	t.Run("plain", func(t *testing.T) { test(t, Options{}) })
	t.Run("followed", func(t *testing.T) { test(t, Options{Exchange: http1.NewExchange()}) })
}

// A server that has its say and closes while the client still sends, and data is
// unread with it, resets the connection. The client hears what the server said first,
// as it does without a relay between them.
func TestTheServersLastWordsAreHeard(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, o Options) {
		last := "HTTP/1.1 413 Content Too Large\r\n\r\n" + strings.Repeat("too much. ", 100)
		for range 40 {
			if o.Exchange != nil {
				o.Exchange = http1.NewExchange()
			}
			r := relay(t, t.Context(), o)
			go func() {
				_, _ = io.ReadFull(r.server, make([]byte, 1<<10))
				_, _ = io.WriteString(r.server, last)
				_ = r.server.Close()
			}()
			upload := make([]byte, 64<<10)
			for {
				if _, err := r.client.Write(upload); err != nil {
					break
				}
			}
			got, err := io.ReadAll(r.client)
			if string(got) != last {
				t.Fatalf("the client heard %d of %d bytes, and %v", len(got), len(last), err)
			}
			if e := r.end(t); e.Why != ByServer {
				t.Fatalf("it ended with %+v, want by the server", e)
			}
		}
	})
}

// So does one who sends little, and is told why it must leave.
func TestAKickedPlayerHearsTheReason(t *testing.T) {
	t.Parallel()
	const reason = "you are banned"
	for range 100 {
		r := relay(t, t.Context(), Options{})
		go func() {
			_, _ = io.ReadFull(r.server, make([]byte, 10))
			<-time.After(2 * time.Millisecond) // a tick of the game; what comes meanwhile is unread
			_, _ = io.WriteString(r.server, reason)
			_ = r.server.Close()
		}()
		go func() {
			for {
				if _, err := io.WriteString(r.client, "0123456789"); err != nil {
					return
				}
				<-time.After(100 * time.Microsecond)
			}
		}()
		if got, err := io.ReadAll(r.client); string(got) != reason {
			t.Fatalf("the client heard %q, and %v", got, err)
		}
	}
}

// What a client said last reaches a server, too, that reads it late, and then the
// reset.
func TestAResetComesAfterWhatWasSaid(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, o Options) {
		r := relay(t, t.Context(), o)
		said := bytes.Repeat([]byte("save! "), 100_000)
		if _, err := r.client.Write(said[:6]); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r.server, make([]byte, 6)); err != nil {
			t.Fatal(err)
		}
		// It is not read by the client, which therefore resets.
		if _, err := io.WriteString(r.server, "unread"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r.client, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if _, err := r.client.Write(said); err != nil {
			t.Fatal(err)
		}
		for unheard(t, r.client) {
			runtime.Gosched()
		}
		_ = r.client.Close()
		<-time.After(50 * time.Millisecond) // the server is slow; the relay hears of the reset
		got, err := io.ReadAll(r.server)
		if len(got) != len(said) || !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the server got %d of %d bytes, and then %v", len(got), len(said), err)
		}
		if e := r.end(t); e.Why != ByClient {
			t.Errorf("it ended with %+v, want by the client", e)
		}
	})
}

// unheard reports whether the other side's kernel has not got all.
func unheard(t *testing.T, c *net.TCPConn) (is bool) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { is = conn.Unheard(int(fd)) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return is
}

// One side has said all and only listens. When the other's connection fails then, it
// is told, and the relay ends.
func TestAHalfClosedRelayEndsWithEitherSide(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, o Options) {
		for _, who := range []string{"the client", "the server"} {
			r := relay(t, t.Context(), o)
			quitter, other, why := r.client, r.server, ByClient
			if who == "the server" {
				quitter, other, why = r.server, r.client, ByServer
			}
			if err := quitter.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			if n, err := other.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
				t.Fatalf("%d, %v", n, err)
			}
			_ = quitter.SetLinger(0)
			_ = quitter.Close()
			if e := r.end(t); e.Why != why {
				t.Errorf("%s was reset: it ended with %+v", who, e)
			}
			// What is sent now meets a reset.
			for {
				if _, err := other.Write([]byte("x")); err != nil {
					break
				}
			}
		}
	})
}

func TestAHalfClosedRelayEndsAfterItsTime(t *testing.T) {
	t.Parallel()
	r := relay(t, t.Context(), Options{HalfClosed: 2 * time.Second})
	if err := r.client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	// As long as the server says something it goes on.
	for range 8 {
		<-time.After(300 * time.Millisecond)
		if _, err := io.WriteString(r.server, "."); err != nil {
			t.Fatal(err)
		}
	}
	got, err := io.ReadAll(r.client)
	if len(got) != 8 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client heard %q, and then %v", got, err)
	}
	if e := r.end(t); e.Why != ByTimeout {
		t.Errorf("it ended with %+v, want by its timeout", e)
	}
}

func TestAnIdleRelayEndsAfterItsTime(t *testing.T) {
	t.Parallel()
	r := relay(t, t.Context(), Options{Idle: 2 * time.Second, HalfClosed: time.Hour})
	for range 8 {
		<-time.After(300 * time.Millisecond)
		if _, err := io.WriteString(r.client, "."); err != nil {
			t.Fatal(err)
		}
	}
	if e := r.end(t); e.Why != ByTimeout {
		t.Errorf("it ended with %+v, want by its timeout", e)
	}
	if got, err := io.ReadAll(r.server); len(got) != 8 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server heard %q, and then %v", got, err)
	}
}

// A relay that is cut doesn't look as if all had been said.
func TestACutRelayIsReset(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, o Options) {
		ctx, cut := context.WithCancel(t.Context())
		r := relay(t, ctx, o)
		go func() { _, _ = r.server.Write(make([]byte, 8<<20)) }()
		if _, err := io.ReadFull(r.client, make([]byte, 1<<10)); err != nil {
			t.Fatal(err)
		}
		cut()
		n, err := io.Copy(io.Discard, r.client)
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("after %d bytes more the client got %v, want a reset", n, err)
		}
		if e := r.end(t); e.Why != ByCut {
			t.Errorf("it ended with %+v, want by the cut", e)
		}
	})
}

// What readers that have stalled leave is bounded by the budget, gets to them when they
// go on, and is given back.
func TestWhatStalledReadersLeaveIsBounded(t *testing.T) { //nolint:paralleltest // it takes all of the processors
	const each, clients, budget = 4 << 20, 90, conn.BufferBytes
	kept := conn.NewBudget(budget)
	bulk := make([]byte, each)
	for i := range bulk {
		bulk[i] = byte(i * i >> 9)
	}
	all := make([]relayed, 0, clients)
	for i := range clients {
		o := Options{Kept: kept}
		if i%2 == 0 {
			o.Exchange = http1.NewExchange()
		}
		r := relay(t, t.Context(), o)
		go func() {
			_, _ = r.server.Write(bulk)
			_ = r.server.CloseWrite()
		}()
		all = append(all, r)
	}
	for deadline := time.Now().Add(20 * time.Second); !kept.Full(); <-time.After(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes are kept though nobody reads", kept.Used())
		}
	}
	<-time.After(300 * time.Millisecond) // the rest of them stall
	// A loop that finds room may go beyond it once.
	if used := kept.Used(); used > budget+2*conn.BufferBytes {
		t.Errorf("%d bytes are kept for readers that have stalled, of %d", used, budget)
	}
	errs := make(chan error, clients)
	for i, r := range all {
		go func() {
			got, err := io.ReadAll(r.client)
			if err == nil && !bytes.Equal(got, bulk) {
				err = fmt.Errorf("client %d got %d bytes, not those of the server", i, len(got))
			}
			_ = r.client.Close()
			errs <- err
		}()
	}
	for range all {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	for _, r := range all {
		r.end(t)
	}
	if used := kept.Used(); used != 0 {
		t.Errorf("%d bytes are kept in the end", used)
	}
}

// A side that has said all, to one that has, too, and still reads slowly what came
// before, costs no processor.
func TestARelayThatHangsUpWithBytesLeftDoesNotSpin(t *testing.T) { //nolint:paralleltest // it looks at the process's time
	for _, who := range []string{"the client", "the server"} {
		r := relay(t, t.Context(), Options{})
		first, second := r.client, r.server
		if who == "the server" {
			first, second = r.server, r.client
		}
		// It has said all, and the other says much, and all, before it reads.
		if err := first.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if n, err := second.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
			t.Fatalf("%d, %v", n, err)
		}
		// As much as there is room for on the way, of which the relay keeps the last.
		_ = second.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		said, err := second.Write(make([]byte, 64<<20))
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%d bytes, %v", said, err)
		}
		got := 0
		for buf := make([]byte, 16<<10); unheard(t, second); {
			n, err := first.Read(buf)
			if got += n; err != nil {
				t.Fatal(err)
			}
		}
		if err := second.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if !becomesIdle(t) {
			t.Errorf("%s reads no more, and the process goes on working", who)
		}
		rest, err := io.ReadAll(first)
		if got += len(rest); got != said || err != nil {
			t.Errorf("%s got %d of %d bytes, %v", who, got, said, err)
		}
		if e := r.end(t); e.Err != nil {
			t.Errorf("it ended with %+v", e)
		}
	}
}

// A relay that has lost its server, and waits until the client has received what it said, costs
// no processor once the client has ended, too.
func TestARelayThatWaitsForASlowReaderDoesNotSpin(t *testing.T) { //nolint:paralleltest // it looks at the process's time
	r := relay(t, t.Context(), Options{})
	// The client has room for a part of it, and the relay's kernel for the rest.
	if err := r.client.SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	said, err := r.server.Write(make([]byte, 64<<10))
	if err != nil {
		t.Fatal(err)
	}
	for unheard(t, r.server) {
		runtime.Gosched()
	}
	if err := r.server.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	loop.Settle() // the end has gone to the client's connection, too
	loop.Settle()
	_ = r.server.SetLinger(0)
	_ = r.server.Close()
	if err := r.client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if !becomesIdle(t) {
		t.Error("the client reads no more, and the process goes on working")
	}
	if got, err := io.Copy(io.Discard, r.client); got != int64(said) {
		t.Errorf("the client got %d of %d bytes, and then %v", got, said, err)
	}
	r.end(t)
}

// becomesIdle reports whether the process soon does nothing. What spins does so for as long as
// nobody reads; the race detector's own work, and the collector's, come to an end.
func becomesIdle(t *testing.T) bool {
	t.Helper()
	const pause = 300 * time.Millisecond
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		before := processTime(t)
		<-time.After(pause)
		if processTime(t)-before <= pause/2 {
			return true
		}
	}
	return false
}

func processTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
