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
	f.Loop.Do(func() {
		defer close(done)
		what()
	})
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("the loop does nothing")
	}
}

type recorder struct {
	events chan uint32
	ends   chan int
	file   *File
}

func (h *recorder) Ready(_ *Loop, events uint32) {
	var b [16]byte
	_, _ = unix.Read(h.file.FD, b[:])
	h.events <- events
	h.file.Loop.AtEnd(h)
}

func (h *recorder) TurnEnds() { h.ends <- len(h.events) }

func say(t *testing.T, fd int, text string) {
	t.Helper()
	if _, err := unix.Write(fd, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func TestALoopCallsWhoeverAFileBelongsTo(t *testing.T) {
	h := &recorder{events: make(chan uint32, 10), ends: make(chan int, 10)}
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
	h := &recorder{events: make(chan uint32, 10), ends: make(chan int, 10)}
	far, f := sockets(t, h)
	h.file = f
	other := &recorder{events: h.events, ends: make(chan int, 10)}
	second, g := sockets(t, other)
	other.file = g
	// Both are one loop's, which sees them ready at once.
	if f.Loop != g.Loop {
		if err := g.Open(f.Loop, g.FD, other); err != nil {
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

// calls is a handler that is a function.
type calls func(on *Loop)

func (c calls) Ready(on *Loop, _ uint32) { c(on) }

// What was told of a file is not taken for its successor's, which has its number.
func TestAnEventIsNotTheNextFilesOfTheNumber(t *testing.T) {
	second := &File{}
	var ends [3]int // two that speak, and what takes the number
	var files [2]*File
	called := make(chan int, 2)
	for i := range files {
		// Whichever is called first gives the other's number to a new file.
		ends[i], files[i] = sockets(t, calls(func(on *Loop) {
			called <- i
			other := files[1-i]
			number := other.FD
			other.Close()
			if err := unix.Dup3(ends[2], number, unix.O_CLOEXEC); err != nil {
				t.Error(err)
			}
			if err := second.Open(on, number, calls(func(*Loop) { t.Error("a file was told what its predecessor was ready for") })); err != nil {
				t.Error(err)
			}
			files[i].Close()
		}))
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = unix.Close(pair[0]), unix.Close(pair[1]) }()
	ends[2] = pair[0]
	l := files[0].Loop
	in(t, files[0], func() {
		if err := files[1].Open(l, files[1].FD, files[1].handler); err != nil {
			t.Error(err)
		}
		say(t, ends[0], "a")
		say(t, ends[1], "b")
		_, _ = files[0].Want(In), files[1].Want(In)
	})
	<-called
	Settle()
	if len(called) != 0 {
		t.Error("a closed file was told to be ready")
	}
	in(t, second, second.Close)
}

// While one loop is busy another takes what all wait for.
func TestASharedFileIsTakenByALoopThatHasTime(t *testing.T) {
	if Next(); len(loops) < 2 {
		t.Skip("there is one loop")
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(ends[0]) }()
	took := make(chan *Loop, 1)
	f := &File{}
	if err := f.OpenShared(ends[1], calls(func(on *Loop) {
		var b [16]byte
		if n, err := unix.Read(ends[1], b[:]); err == nil && n > 0 {
			took <- on
		}
	})); err != nil {
		t.Fatal(err)
	}
	if err := f.Want(In); err != nil {
		t.Fatal(err)
	}
	for _, busy := range loops {
		running, left := make(chan struct{}), make(chan struct{})
		busy.Do(func() { close(running); <-left })
		<-running
		say(t, ends[0], "x")
		select {
		case on := <-took:
			if on == busy {
				t.Error("a loop was called while it did something else")
			}
		case <-time.After(patience):
			t.Error("no loop took it")
		}
		close(left)
	}
	if err := f.Want(0); err != nil {
		t.Error(err)
	}
	say(t, ends[0], "y")
	Settle()
	if len(took) != 0 {
		t.Error("a file that is not waited for was told to be ready")
	}
	f.Close()
	Settle()
}

// What begins on a loop stays there until that has far more than another.
func TestWhatIsNearIsNotOnTheFullestLoop(t *testing.T) {
	if Next(); len(loops) < 2 {
		t.Skip("there is one loop")
	}
	l := loops[0]
	var opened []*File
	for i := 0; l.Near() == l; i++ {
		if i > 10*nearFiles {
			t.Fatalf("%d files are on one loop, and all others are to be", i)
		}
		f := &File{}
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Open(l, fd, calls(func(*Loop) {})); err != nil {
			t.Fatal(err)
		}
		opened = append(opened, f)
	}
	if len(opened) <= nearFiles {
		t.Errorf("a loop with %d files more than another is left", len(opened))
	}
	if near := loops[1].Near(); near != loops[1] {
		t.Error("an emptier loop is left")
	}
	for _, f := range opened {
		f.Close()
	}
	if l.Near() != l {
		t.Error("a loop whose files are closed is left")
	}
}

// What can't be waited for is told, and can be tried again: a regular file is never
// waited for.
func TestWhatCannotBeWaitedForIsTold(t *testing.T) {
	fd, err := unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, open := range map[string]func(f *File, fd int) error{
		"of one loop":  func(f *File, fd int) error { return f.Open(Next(), fd, &recorder{}) },
		"of all loops": func(f *File, fd int) error { return f.OpenShared(fd, &recorder{}) },
	} {
		t.Run(name, func(t *testing.T) {
			var f File
			if err := open(&f, fd); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := f.Want(In); err == nil {
					t.Error("a regular file is waited for")
				}
			}
			f.forget()
		})
	}
	_ = unix.Close(fd)
}
