// Package listener owns the resolver's sockets: one for each service port, opened as soon as it
// is wanted, tried again while that fails, and closed when it isn't wanted any more. What
// arrives is handed to the port's owner.
package listener

import (
	"sync"
	"time"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// openFirst and openLast are the pauses between tries to open a port.
const (
	openFirst = 50 * time.Millisecond
	openLast  = 5 * time.Second
)

// Socket is what a port is opened as.
type Socket interface {
	// Serve begins to take clients. It does not wait. After an error no client is taken.
	Serve() error
	// Close takes no new clients. It does not wait.
	Close() error
	// Cut ends the clients that need the socket.
	Cut()
	// Ended is closed once a closed socket has no client left that needs it.
	Ended() <-chan struct{}
}

// Open opens a port.
type Open func() (Socket, error)

// Listener keeps one port open.
type Listener struct {
	// log makes the logger when there is something to log: there are many listeners.
	log  func() logr.Logger
	open Open
	// closing ends the tries, and tried is closed when they have ended. Both are nil where the
	// first one succeeded.
	closing, tried chan struct{}

	mu     sync.Mutex
	socket Socket
	failed error
	closed bool
}

// Start opens a port, and goes on trying when that fails. It returns after the first try.
func Start(log func() logr.Logger, open Open) *Listener {
	l := &Listener{log: log, open: open}
	if !l.try() {
		l.closing, l.tried = make(chan struct{}), make(chan struct{})
		go l.goOn()
	}
	return l
}

// State reports whether the port is open and, if it isn't, why.
func (l *Listener) State() (listening bool, failed error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.socket != nil, l.failed
}

// Close ends the listener. A TCP port is free afterwards.
func (l *Listener) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	if l.closing != nil {
		close(l.closing)
	}
	if l.socket != nil {
		_ = l.socket.Close()
	}
}

// Cut ends the clients that a closed listener still has.
func (l *Listener) Cut() {
	l.mu.Lock()
	socket := l.socket
	l.mu.Unlock()
	if socket != nil {
		socket.Cut()
	}
}

// Ended reports whether Wait would return at once.
func (l *Listener) Ended() bool {
	for _, end := range l.ends() {
		select {
		case <-end:
		default:
			return false
		}
	}
	return true
}

// Wait waits until a closed listener has ended.
func (l *Listener) Wait() {
	for _, end := range l.ends() {
		<-end
	}
}

// ends are the channels that are closed when a closed listener has ended.
func (l *Listener) ends() (ends []<-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tried != nil {
		ends = append(ends, l.tried)
	}
	if l.socket != nil {
		ends = append(ends, l.socket.Ended())
	}
	return ends
}

// try opens the port; false: it has to be tried again.
func (l *Listener) try() bool {
	socket, err := l.open()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed = err; err != nil {
		return false
	}
	if l.closed {
		l.socket = socket // its socket may have clients from before
		_ = socket.Close()
		return true
	}
	if l.failed = socket.Serve(); l.failed != nil {
		_ = socket.Close()
		return false
	}
	l.socket = socket
	return true
}

// goOn tries until the port is open.
func (l *Listener) goOn() {
	defer utilruntime.HandleCrash()
	defer close(l.tried)
	_, failed := l.State()
	l.log().Info("A port can't be opened, and is tried again", "error", failed.Error())
	for pause := openFirst; ; pause = min(2*pause, openLast) {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-l.closing:
			timer.Stop()
			return
		}
		if l.try() {
			return
		}
	}
}
