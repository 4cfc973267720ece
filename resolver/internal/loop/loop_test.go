package loop

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds what should happen at once.
const patience = 10 * time.Second

// sockets are two ends of a connection, of which the second is a loop's.
func sockets(t *testing.T, h Handler) (far int, f *File) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(ends[0]) })
	f = &File{}
	if err := f.Open(Next(), ends[1], h); err != nil {
		t.Fatal(err)
	}
	return ends[0], f
}

// in calls something in a file's loop, and waits for it.
func in(t *testing.T, f *File, what func()) {
	t.Helper()
	done := make(chan struct{})
	f.Loop().Do(func() {
		defer close(done)
		what()
	})
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("the loop does nothing")
	}
}

type told struct {
	events chan uint32
	ends   chan int
	file   *File
}

func (h *told) Ready(events uint32) {
	var b [16]byte
	_, _ = unix.Read(h.file.FD(), b[:])
	h.events <- events
	h.file.Loop().AtEnd(h)
}

func (h *told) TurnEnds() { h.ends <- len(h.events) }

func say(t *testing.T, fd int, text string) {
	t.Helper()
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func TestALoopCallsWhoeverAFileBelongsTo(t *testing.T) {
	h := &told{events: make(chan uint32, 10), ends: make(chan int, 10)}
	far, f := sockets(t, h)
	in(t, f, func() {
		h.file = f
		if err := f.Want(In); err != nil {
			t.Error(err)
		}
	})
	say(t, far, "a")
	select {
	case events := <-h.events:
		if events != In {
			t.Errorf("the file is said to be ready for %#x", events)
		}
	case <-time.After(patience):
		t.Fatal("nobody was called")
	}
	<-h.ends

	// What nobody waits for is nobody told, not even that it is broken.
	in(t, f, func() { _ = f.Want(0) })
	say(t, far, "b")
	Settle()
	if len(h.events) != 0 {
		t.Error("a file that is not waited for was told to be ready")
	}
	in(t, f, func() { _ = f.Want(In) })
	if events := <-h.events; events != In {
		t.Errorf("the file is said to be ready for %#x", events)
	}
	in(t, f, f.Close)
	if n, err := unix.Write(far, []byte("c")); err == nil {
		t.Errorf("%d bytes were taken by a file that is closed", n)
	}
}

// In one turn all that is ready is called before the turn ends.
func TestATurnEndsAfterAllThatWasReady(t *testing.T) {
	h := &told{events: make(chan uint32, 10), ends: make(chan int, 10)}
	far, f := sockets(t, h)
	h.file = f
	other := &told{events: h.events, ends: make(chan int, 10)}
	second, g := sockets(t, other)
	other.file = g
	// Both are one loop's, which sees them ready at once.
	if f.Loop() != g.Loop() {
		if err := g.Open(f.Loop(), g.FD(), other); err != nil {
			t.Fatal(err)
		}
	}
	in(t, f, func() {
		say(t, far, "a")
		say(t, second, "b")
		_, _ = f.Want(In), g.Want(In)
	})
	for _, ends := range []chan int{h.ends, other.ends} {
		if called := <-ends; called != 2 {
			t.Errorf("a turn ended when %d of 2 were called", called)
		}
	}
	in(t, f, func() { f.Close(); g.Close() })
}

func TestEachLoopHasItsTurn(t *testing.T) {
	l := Next()
	if other := l.Other(); len(loops) > 1 && other == l {
		t.Error("the other loop is the same")
	}
	seen := map[*Loop]bool{}
	for range loops {
		seen[Next()] = true
	}
	if len(seen) != len(loops) {
		t.Errorf("%d of %d loops had their turn", len(seen), len(loops))
	}
}
