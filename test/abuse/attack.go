// Package abuse attacks the operator's wake endpoint as a pod inside the cluster
// could, with real and forged tokens, and judges the defence: each call refused
// with its own code, each refusal counted, memory flat, and good calls answered
// meanwhile.
package abuse

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// rounds is how often memory is looked at.
	rounds = 4
	// callTimeout is far above what any call takes.
	callTimeout = 20 * time.Second
	// shown is how many wrong answers an error tells.
	shown = 10
)

// Attack is what is to be done.
type Attack struct {
	// Address is the operator's, host:port.
	Address string
	Kinds   []Kind
	// Calls is how many bad calls are made in all, of each kind as many as of
	// another, over so many Connections at once.
	Calls, Connections int
	// Good is the i-th good call, one of which is made every Every.
	Good  func(i int) []byte
	Every time.Duration
}

// Result is what came of it.
type Result struct {
	// Calls are the bad calls by their kind.
	Calls map[string]int
	// Codes are their answers' codes.
	Codes map[int]int
	// RSS is the operator's resident memory in bytes, at the start and after each
	// quarter of the calls.
	RSS []uint64
	// Good are the times that good calls took, and Again how many more were told
	// to come again because the API server was too slow, as it is on a machine that
	// has too much to do.
	Good  []time.Duration
	Again int
	Took  time.Duration
}

// Run attacks. It fails where any call isn't answered with its code, and where
// the operator's counters don't say exactly what was done.
func (a Attack) Run(ctx context.Context) (Result, error) {
	before, err := ReadCounters(ctx, a.Address)
	if err != nil {
		return Result{}, err
	}
	r := Result{Calls: map[string]int{}, Codes: map[int]int{}, RSS: []uint64{before.RSS}}
	wrong := &mistakes{}
	stopGood, over := context.WithCancel(ctx)
	defer over()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.Good, r.Again = a.callWell(stopGood, wrong)
	}()
	started := time.Now()
	expected := Counters{Answered: map[int]int{}, Refused: map[int]int{}}
	for round := range rounds {
		first, last := a.Calls*round/rounds, a.Calls*(round+1)/rounds
		a.volley(ctx, first, last, wrong)
		for i := first; i < last; i++ {
			k := a.Kinds[i%len(a.Kinds)]
			r.Calls[k.Name]++
			r.Codes[k.Code]++
			if k.Unread {
				expected.Refused[k.Code]++
			} else {
				expected.Answered[k.Code]++
			}
		}
		now, err := ReadCounters(ctx, a.Address)
		if err != nil {
			over()
			<-ended
			return r, errors.Join(err, wrong.err())
		}
		r.RSS = append(r.RSS, now.RSS)
	}
	r.Took = time.Since(started)
	over()
	<-ended
	expected.Answered[http.StatusAccepted] += len(r.Good)
	if r.Again > 0 {
		expected.Answered[http.StatusServiceUnavailable] = r.Again
	}
	after, err := ReadCounters(ctx, a.Address)
	return r, errors.Join(wrong.err(), err, after.minus(before).equal(expected))
}

// Baseline makes good calls for a while, and nothing else.
func (a Attack) Baseline(ctx context.Context, during time.Duration) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, during)
	defer cancel()
	wrong := &mistakes{}
	took, _ := a.callWell(ctx, wrong)
	return took, wrong.err()
}

// volley makes the bad calls from first to last.
func (a Attack) volley(ctx context.Context, first, last int, wrong *mistakes) {
	var next atomic.Int64
	next.Store(int64(first))
	var group sync.WaitGroup
	for range a.Connections {
		group.Go(func() {
			line := &line{address: a.Address}
			defer line.hangUp()
			for {
				i := int(next.Add(1)) - 1
				if i >= last || ctx.Err() != nil {
					return
				}
				k := a.Kinds[i%len(a.Kinds)]
				code, err := line.call(ctx, k.request(i/len(a.Kinds)))
				wrong.check(k.Name, code, k.Code, err)
			}
		})
	}
	group.Wait()
}

// callWell makes good calls until the attack is over.
func (a Attack) callWell(ctx context.Context, wrong *mistakes) (took []time.Duration, again int) {
	line := &line{address: a.Address}
	defer line.hangUp()
	tick := time.NewTicker(a.Every)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return took, again
		case <-tick.C:
		}
		started := time.Now()
		// A call that has begun is counted, whatever happens to the attack.
		code, err := line.call(context.WithoutCancel(ctx), a.Good(i))
		if err == nil && code == http.StatusServiceUnavailable {
			again++
			continue
		}
		took = append(took, time.Since(started))
		wrong.check("a good call", code, http.StatusAccepted, err)
	}
}

// line is a connection that is kept for as long as the server likes.
type line struct {
	address string
	conn    net.Conn
	reader  *bufio.Reader
}

func (l *line) call(ctx context.Context, request []byte) (code int, err error) {
	if l.conn == nil {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		if l.conn, err = new(net.Dialer).DialContext(ctx, "tcp", l.address); err != nil {
			return 0, fmt.Errorf("connect: %w", err)
		}
		l.reader = bufio.NewReader(l.conn)
	}
	_ = l.conn.SetDeadline(time.Now().Add(callTimeout))
	// A server that refuses may close before it has read all: what counts is the
	// answer.
	_, sendErr := l.conn.Write(request)
	response, err := http.ReadResponse(l.reader, nil)
	if err != nil {
		l.hangUp()
		return 0, errors.Join(sendErr, fmt.Errorf("read the answer: %w", err))
	}
	_, err = io.Copy(io.Discard, response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil || response.Close {
		l.hangUp()
	}
	return response.StatusCode, err
}

func (l *line) hangUp() {
	if l.conn != nil {
		l.conn.Close()
		l.conn = nil
	}
}

// mistakes are the first wrong answers, and how many there were.
type mistakes struct {
	mu    sync.Mutex
	first []error
	count int
}

func (m *mistakes) check(what string, code, want int, err error) {
	switch {
	case err != nil:
		err = fmt.Errorf("%s: %w", what, err)
	case code != want:
		err = fmt.Errorf("%s: answered %d, want %d", what, code, want)
	default:
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count++
	if len(m.first) < shown {
		m.first = append(m.first, err)
	}
}

func (m *mistakes) err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.count == 0 {
		return nil
	}
	return fmt.Errorf("%d calls were answered wrongly, such as: %w", m.count, errors.Join(m.first...))
}
