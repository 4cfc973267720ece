package page

import (
	"bufio"
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

const (
	// flushEvery gathers lines, so that a chatty game costs a browser some events a second.
	flushEvery = 200 * time.Millisecond
	// retryEvery is for a log that can't be had, as a game that is starting has none yet, and for one
	// whose connection broke.
	retryEvery = 2 * time.Second
	// retryUnexpected is for one that fails, which is logged each time.
	retryUnexpected = time.Minute
)

// logMessage is what came in the log.
type logMessage struct {
	// Fresh is whether these lines are instead of all before.
	Fresh bool     `json:"fresh"`
	Lines []string `json:"lines"`
	// Lost is how many lines before these were left out, since they came too fast.
	Lost int `json:"lost,omitempty"`
	// Note says instead why there is no log.
	Note string `json:"note,omitempty"`
}

// follower follows a server's log for a stream. Its reader never waits for the browser: lines that
// come faster than the browser takes them are left out, and counted.
type follower struct {
	p    *page
	r    *signedIn
	id   int64
	most int
	// note is what was last said of a log that isn't there.
	note string

	mu    sync.Mutex
	ahead logMessage
	// again is asked for when the server changed: its game may be another one.
	again chan struct{}
}

// take takes what is to be sent, and reports whether there is anything.
func (f *follower) take() (logMessage, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.ahead
	f.ahead = logMessage{}
	return m, m.Fresh || len(m.Lines) > 0 || m.Note != ""
}

func (f *follower) put(change func(*logMessage)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.ahead)
}

// run follows the log until ctx ends. It begins anew when the server changed, or after a while
// where there was no log, or it broke off.
func (f *follower) run(ctx context.Context) {
	for ctx.Err() == nil {
		pause := time.Duration(0)
		switch had, err := f.follow(ctx); {
		case err == nil || ctx.Err() != nil:
		case had:
			pause = retryEvery
		default:
			pause = f.say(err)
		}
		f.wait(ctx, pause)
	}
}

// say tells why there is no log, once, and returns when to look again: later where nobody expects
// that it changes.
func (f *follower) say(err error) time.Duration {
	pause := retryEvery
	if refusal := (*Refusal)(nil); !errors.As(err, &refusal) {
		pause = retryUnexpected
	}
	note := f.p.refusalOf(f.r.Request, err).Sentence
	if note != f.note {
		f.note = note
		f.put(func(m *logMessage) { m.Note = note })
	}
	return pause
}

// wait waits until the server changed or, with a pause, for that long.
func (f *follower) wait(ctx context.Context, pause time.Duration) {
	var over <-chan time.Time
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-ctx.Done():
	case <-f.again:
	case <-over:
	}
}

// follow reads the log to its end, which is no error, and reports whether there was one.
func (f *follower) follow(ctx context.Context) (had bool, err error) {
	log, err := f.p.servers.Logs(ctx, f.r.who, f.id, f.most, true)
	if err != nil {
		return false, err
	}
	defer log.Close()
	// Whoever wrote Logs may only see that it is closed.
	stop := context.AfterFunc(ctx, func() { _ = log.Close() })
	defer stop()
	f.note = ""
	f.put(func(m *logMessage) { *m = logMessage{Fresh: true} })
	in := bufio.NewReader(log)
	for {
		line, err := readLine(in)
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return true, err
		}
		f.put(func(m *logMessage) {
			m.Lines = append(m.Lines, line)
			if over := len(m.Lines) - f.most; over > 0 {
				m.Lines, m.Lost = m.Lines[over:], m.Lost+over
			}
		})
	}
}

// changed has the log begun anew where it has ended.
func (f *follower) changed() {
	select {
	case f.again <- struct{}{}:
	default:
	}
}
