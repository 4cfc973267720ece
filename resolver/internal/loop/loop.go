// Package loop waits for many sockets in few goroutines, and calls a socket's handler when it
// is ready. A goroutine for each socket costs a switch for each message, and memory for each
// client. What is small and happens often is done here instead.
//
// The process has one set of loops, as it has one network poller in the runtime.
package loop

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// What a file may be ready for, and what may be waited for.
const (
	In  = unix.EPOLLIN
	Out = unix.EPOLLOUT
	// Edge reports In and Out once each time when more can be done, and not as long as it can.
	Edge = unix.EPOLLET
	// Broken is reported whatever else is waited for.
	Broken = unix.EPOLLERR | unix.EPOLLHUP
)

const (
	// eventsATurn is how many files are reported at once. It bounds how long a file that is
	// ready waits for the others.
	eventsATurn = 256
	// nearFiles is how many more files than another a loop may have before Near chooses the
	// other.
	nearFiles = 16
	// bufferBytes is the size of the buffer that a loop lends to its handlers.
	bufferBytes = 64 << 10
)

// Handler handles a file's events. The file's loop calls it, and it must not wait for anything.
type Handler interface {
	// Ready is called with what the file may be ready for. It may turn out not to be.
	Ready(on *Loop, events uint32)
}

// Ender is notified when a loop has called all handlers that were ready.
type Ender interface{ TurnEnds() }

// Loop is one goroutine that waits.
type Loop struct {
	epoll, bell int
	events      [eventsATurn]unix.EpollEvent
	// Buffer is for a handler, until it returns.
	Buffer [bufferBytes]byte
	enders []Ender
	now    time.Time
	// open is how many files the loop has of its own.
	open atomic.Int32

	mu    sync.Mutex
	tasks []func()
}

var (
	once  sync.Once
	loops []*Loop
	turn  atomic.Uint32
)

// Other is another loop, each in turn; this one if there is no other.
func (l *Loop) Other() *Loop {
	if next := Next(); next != l {
		return next
	}
	return Next()
}

// Near is this loop, unless it has many more files than another: then it is the one with the
// fewest. Work that begins on a loop is cheap to continue there.
func (l *Loop) Near() *Loop {
	near, fewest := l, l.open.Load()
	enough := fewest - fewest/4 - nearFiles
	for _, other := range loops {
		if n := other.open.Load(); n < enough && n < fewest {
			near, fewest = other, n
		}
	}
	return near
}

// Next is the loop whose turn it is to get a new file. There is one loop for each processor.
// Failing to make them ends the process, because no file descriptors are left.
func Next() *Loop {
	once.Do(startAll)
	return loops[int(turn.Add(1))%len(loops)]
}

// Settle waits until each loop has finished its current turn and its tasks. A loop's handlers
// must not call it.
func Settle() {
	once.Do(startAll)
	var wg sync.WaitGroup
	for _, l := range loops {
		wg.Add(1)
		l.Do(wg.Done)
	}
	wg.Wait()
}

func startAll() {
	// A loop that waits in the kernel keeps its processor's place for a while. With as many
	// places more the other goroutines find one at once.
	n := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(2 * n)
	for range n {
		l, err := newLoop()
		utilruntime.Must(err)
		loops = append(loops, l)
		go l.run()
	}
}

func newLoop() (*Loop, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("making a poller: %w", err)
	}
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("making a poller's bell: %w", err)
	}
	l := &Loop{epoll: epoll, bell: bell}
	if err := l.control(unix.EPOLL_CTL_ADD, &File{FD: bell}, In); err != nil {
		return nil, err
	}
	return l, nil
}

// Do has the loop call a task in its next turn. Any goroutine may call it; it does not wait.
func (l *Loop) Do(task func()) {
	l.mu.Lock()
	l.tasks = append(l.tasks, task)
	first := len(l.tasks) == 1
	l.mu.Unlock()
	if first {
		_, _ = unix.Write(l.bell, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// Now is the time when it was first asked for in this turn. It is for the loop's handlers.
func (l *Loop) Now() time.Time {
	if l.now.IsZero() {
		l.now = time.Now()
	}
	return l.now
}

// AtEnd has the loop call e once, when it has called all handlers that are ready now. It is for
// the loop's handlers.
func (l *Loop) AtEnd(e Ender) { l.enders = append(l.enders, e) }

func (l *Loop) run() {
	for {
		l.turn()
	}
}

// turn waits until something is ready and calls the handlers.
func (l *Loop) turn() {
	defer utilruntime.HandleCrash()
	busy := false
	for {
		n, errno := l.wait(busy)
		busy = n > 1
		l.now = time.Time{}
		if errno != 0 && errno != unix.EINTR {
			utilruntime.Must(os.NewSyscallError("epoll_pwait", errno))
		}
		rung := false
		for i := range n {
			e := &l.events[i]
			if int(e.Fd) == l.bell {
				rung = true
				continue
			}
			// The file may have been closed by an earlier call of this turn or elsewhere, and
			// its number may be another file's by now.
			if f := fileOf(int(e.Fd)); f != nil && f.serial == e.Pad {
				f.handler.Ready(l, e.Events)
			}
		}
		for i := 0; i < len(l.enders); i++ {
			l.enders[i].TurnEnds()
			l.enders[i] = nil
		}
		l.enders = l.enders[:0]
		if rung {
			l.doTasks()
		}
	}
}

// wait waits until something is ready. A busy loop yields the processor once before it sleeps:
// what others have ready meanwhile need not wake a thread then, which costs more than the extra
// look. A loop that is not busy would be late for that, since the scheduler runs it again only
// in its next turn.
func (l *Loop) wait(busy bool) (int, syscall.Errno) {
	if busy {
		for range 2 {
			n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.epoll), uintptr(unsafe.Pointer(&l.events[0])), eventsATurn, 0, 0, 0) //nolint:gosec // the kernel writes there
			if errno != 0 || n > 0 {
				return int(n), errno
			}
			_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
		}
	}
	// This call is known to the scheduler, because it may take long.
	n, _, errno := unix.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.epoll), uintptr(unsafe.Pointer(&l.events[0])), eventsATurn, ^uintptr(0), 0, 0) //nolint:gosec // the kernel writes there
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

func (l *Loop) doTasks() {
	var buf [8]byte
	_, _ = unix.Read(l.bell, buf[:])
	l.mu.Lock()
	tasks := l.tasks
	l.tasks = nil
	l.mu.Unlock()
	for _, task := range tasks {
		task()
	}
}

func (l *Loop) control(op int, f *File, events uint32) error {
	e := unix.EpollEvent{Events: events, Fd: int32(f.FD), Pad: f.serial} //nolint:gosec // a file's number
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(l.epoll, op, f.FD, &e))
}
