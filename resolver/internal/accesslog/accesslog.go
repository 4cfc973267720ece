// Package accesslog writes a line of JSON about each client when its stay has ended: who the
// client was, which service it wanted, which backend it got, and why it ended.
//
// Ending a client never waits for the log. Lines for which there is no room are left out, and
// counted.
package accesslog

import (
	"bufio"
	"encoding/json"
	"io"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// waiting is how many lines may wait to be written.
const waiting = 4096

// Ends of a client's stay, beside those of a relay.
const (
	// GaveUp: the client went away while it was held.
	GaveUp = "gave_up"
	// Answered: the client's query was answered in the server's place, and it asked for nothing
	// else.
	Answered = "answered"
	// Refused: the client was refused, for the line's reason.
	Refused = "refused"
	// client: it went away before it wanted anything.
	client = "client"
)

// Log writes lines. A nil Log writes none.
type Log struct {
	lines  chan *entry
	left   func()
	ended  chan struct{}
	mu     sync.RWMutex
	closed bool
}

// New makes a log. It calls left for each line that is left out.
func New(out io.Writer, left func()) *Log {
	l := &Log{lines: make(chan *entry, waiting), left: left, ended: make(chan struct{})}
	go l.write(out)
	return l
}

// Close writes the lines that wait, and takes no more.
func (l *Log) Close() {
	if l == nil {
		return
	}
	l.mu.Lock()
	was := l.closed
	l.closed = true
	l.mu.Unlock()
	if !was {
		close(l.lines)
	}
	<-l.ended
}

// write writes lines, several at once when many come.
func (l *Log) write(out io.Writer) {
	defer close(l.ended)
	buffered := bufio.NewWriter(out)
	encoder := json.NewEncoder(buffered)
	for e := range l.lines {
		if encoder.Encode(e) != nil {
			l.left()
		}
		if len(l.lines) == 0 {
			_ = buffered.Flush()
		}
	}
	_ = buffered.Flush()
}

func (l *Log) put(e *entry) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		l.left()
		return
	}
	select {
	case l.lines <- e:
	default:
		l.left()
	}
}

// entry is a line as it is written.
type entry struct {
	// Time is when the stay ended, and Began when the client came.
	Time  time.Time `json:"time"`
	Began time.Time `json:"began"`
	// Front is the front that the client came to, as namespace/name.
	Front     string `json:"front,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Service   string `json:"service,omitempty"`
	Port      string `json:"port,omitempty"`
	Protocol  string `json:"protocol"`
	Client    string `json:"client"`
	Server    string `json:"server,omitempty"`
	// HeldSeconds is how long the client had no server.
	HeldSeconds   float64 `json:"held_seconds"`
	BytesToServer int64   `json:"bytes_to_server"`
	BytesToClient int64   `json:"bytes_to_client"`
	End           string  `json:"end"`
	Reason        string  `json:"reason,omitempty"`
}

// Line is about one client. It is for all goroutines. A nil Line notes nothing.
type Line struct {
	log *Log
	// toServer and toClient are the bytes that were relayed.
	toServer, toClient atomic.Int64

	mu       sync.Mutex
	client   netip.AddrPort
	served   time.Time
	answered bool
	entry    entry
}

// Begin begins the line of a client that has just come.
func (l *Log) Begin(from netip.AddrPort) *Line {
	if l == nil {
		return nil
	}
	return &Line{log: l, client: from, entry: entry{Began: time.Now()}}
}

// For notes which service the client wants.
func (l *Line) For(namespace, service, port, protocol string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := &l.entry
	e.Namespace, e.Service, e.Port, e.Protocol = namespace, service, port, protocol
}

// At notes which front the client came to, and which protocol it spoke there.
func (l *Line) At(namespace, front, protocol string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entry.Front, l.entry.Protocol = namespace+"/"+front, protocol
}

// From notes the client's address where it isn't the connection's source.
func (l *Line) From(client netip.AddrPort) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.client = client
}

// Served notes the client's backend. The line has the last backend, and the time until the
// first.
func (l *Line) Served(by netip.AddrPort) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.served.IsZero() {
		l.served = time.Now()
	}
	l.entry.Server = by.String()
}

// Answered notes that a query of the client's was answered.
func (l *Line) Answered() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answered = true
}

// AddBytes counts bytes of either direction.
func (l *Line) AddBytes(toServer, toClient int64) {
	if l == nil {
		return
	}
	l.toServer.Add(toServer)
	l.toClient.Add(toClient)
}

// Refused notes that the client is refused, and why.
func (l *Line) Refused(reason string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entry.End == "" {
		l.entry.End, l.entry.Reason = Refused, reason
	}
}

// Ended notes why the client's stay ends. The first call of Ended or Refused counts.
func (l *Line) Ended(why string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.entry.End == "" {
		l.entry.End = why
	}
}

// Write writes the line of a client whose stay has ended.
func (l *Line) Write() {
	if l == nil {
		return
	}
	l.mu.Lock()
	e := l.entry
	served, answered := l.served, l.answered
	e.Client = l.client.String()
	l.mu.Unlock()
	e.Time = time.Now()
	if served.IsZero() {
		served = e.Time
	}
	e.HeldSeconds = served.Sub(e.Began).Seconds()
	e.BytesToServer, e.BytesToClient = l.toServer.Load(), l.toClient.Load()
	switch {
	case e.End != "":
	case answered:
		e.End = Answered
	default:
		e.End = client
	}
	l.log.put(&e)
}
