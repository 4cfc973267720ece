package report

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

// sidecar reports on connections that it keeps.
type sidecar struct {
	r     *replica
	http  *http.Client
	dials atomic.Int32
}

func (r *replica) sidecar() *sidecar {
	s := &sidecar{r: r}
	transport := &http.Transport{
		MaxConnsPerHost: 2, MaxIdleConnsPerHost: 2,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			s.dials.Add(1)
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}
	r.t.Cleanup(transport.CloseIdleConnections)
	s.http = &http.Client{Transport: transport, Timeout: 2 * within}
	return s
}

// say makes a report that must be answered.
func (s *sidecar) say(said *reportapi.Report) (a reportapi.Answer) {
	text, err := json.Marshal(said)
	if err != nil {
		s.r.t.Error(err)
		return a
	}
	req, err := http.NewRequestWithContext(s.r.t.Context(), http.MethodPost, s.r.url+reportapi.ReportPath, bytes.NewReader(text))
	if err != nil {
		s.r.t.Error(err)
		return a
	}
	req.Header.Set("Authorization", "Bearer good")
	res, err := s.http.Do(req)
	if err != nil {
		s.r.t.Error(err)
		return a
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK || json.Unmarshal(answer, &a) != nil {
		s.r.t.Errorf("answered %d %s, %v; want 200", res.StatusCode, answer, err)
	}
	return a
}

func TestASidecarKeepsItsConnectionOverManyHeldReports(t *testing.T) {
	r := start(t, cluster(t), "127.0.0.1:0", func(r *replica) { r.report.hold = 10 * time.Millisecond })
	s := r.sidecar()
	seen := s.say(next(1)).Version
	for i := range 50 {
		if got := s.say(next(uint64(i+2), func(r *reportapi.Report) { r.Seen = seen })).Version; got != seen {
			t.Fatalf("answered with version %q, want %q", got, seen)
		}
	}
	if n := s.dials.Load(); n != 1 {
		t.Errorf("it dialled %d times, want once", n)
	}
}

// When a replica ends, the sidecars that report to it come to another one at once. They come again one after the
// other.
func TestAFirstReportIsHeldForAPartOfTheTime(t *testing.T) {
	var parts atomic.Int32
	r := start(t, cluster(t), "127.0.0.1:0", func(r *replica) {
		r.report.hold = time.Hour
		r.report.firstHold = func(hold time.Duration) time.Duration {
			if parts.Add(1); hold != time.Hour {
				t.Errorf("it is to be a part of %s, want of an hour", hold)
			}
			return time.Millisecond
		}
	})
	s := r.sidecar()
	seen := s.say(next(1)).Version // which isn't held
	said := func(i uint64) *reportapi.Report {
		return next(i, func(r *reportapi.Report) { r.Seen = seen })
	}
	if got := s.say(said(2)).Version; got != seen || parts.Load() != 1 {
		t.Errorf("answered with version %q after %d parts, want %q after one", got, parts.Load(), seen)
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		s.say(said(3))
	}()
	r.eventually("the next one is held", func() bool {
		r.table.mu.Lock()
		defer r.table.mu.Unlock()
		e := r.table.entries["server-1"]
		if e.last.report.Sequence != 3 || e.waiter == nil {
			return false
		}
		e.waiter.mu.Lock()
		defer e.waiter.mu.Unlock()
		return !e.waiter.due
	})
	if n := parts.Load(); n != 1 {
		t.Errorf("%d reports are held for a part of the time, want the first", n)
	}
	r.stop()
	<-answered
}

// One that has reported on its connection before may have been asked whether its Server may be deleted now.
func TestASidecarThatIsHereDoesntStandBehindThoseThatCome(t *testing.T) {
	r := start(t, cluster(t), "127.0.0.1:0", func(r *replica) {
		r.report.hold, r.report.desk.newcomers.patience = time.Millisecond, time.Hour
	})
	s := r.sidecar()
	seen := s.say(next(1)).Version
	s.say(next(2, func(r *reportapi.Report) { r.Seen = seen }))
	places := r.report.desk.newcomers.places
	for range cap(places) {
		places <- struct{}{}
	}
	s.say(next(3, func(r *reportapi.Report) { r.Seen = seen }))
	if n := s.dials.Load(); n != 1 {
		t.Errorf("it dialled %d times, want once", n)
	}
}

// Whatever happens at once, a report is answered once, and none stays.
func TestAHeldReportIsAnsweredOnceInAStorm(t *testing.T) {
	r := start(t, cluster(t), "127.0.0.1:0", func(r *replica) { r.report.hold = 3 * time.Millisecond })
	s := r.sidecar()
	seen := s.say(next(1)).Version
	ctx, stop := context.WithCancel(t.Context())
	var storm, said sync.WaitGroup
	for i := range 4 {
		storm.Go(func() {
			for ctx.Err() == nil {
				if i == 0 {
					r.table.announce("server-1", "one") // which ends the report
				} else {
					r.table.notify("server-1")
				}
				select {
				case <-ctx.Done():
				case <-time.After(100 * time.Microsecond):
				}
			}
		})
	}
	var sequence atomic.Uint64
	for range 2 {
		said.Go(func() {
			for range 300 {
				if got := s.say(next(sequence.Add(1)+1, func(r *reportapi.Report) { r.Seen = seen })).Version; got != seen {
					t.Errorf("answered with version %q, want %q", got, seen)
				}
			}
		})
	}
	said.Wait()
	stop()
	storm.Wait()
	r.eventually("no report is held", func() bool { return r.report.held.Load() == 0 })
	if r.table.entries["server-1"].waiter != nil {
		t.Error("a report that was answered is still notified")
	}
	if n := s.dials.Load(); n > 2 {
		t.Errorf("it dialled %d times, want twice at most", n)
	}
}

// A caller who has gone is found out when there is something to tell, and leaves nothing.
func TestAHeldReportOfACallerWhoHasGoneEnds(t *testing.T) {
	r := start(t, cluster(t), "127.0.0.1:0", func(r *replica) { r.report.hold = 200 * time.Millisecond })
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", r.url[len("http://"):])
	if err != nil {
		t.Fatal(err)
	}
	said := next(1)
	said.Seen = Answer(r.read(), r.readPod(), &v1alpha1.GameType{}).Version
	text, err := json.Marshal(said)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\nContent-Length: %d\r\n\r\n%s", reportapi.ReportPath, len(text), text); err != nil {
		t.Fatal(err)
	}
	r.eventually("it is held", func() bool { return r.report.held.Load() == 1 })
	_ = c.Close()
	r.eventually("it is no longer held", func() bool { return r.report.held.Load() == 0 })
	if r.table.entries["server-1"].waiter != nil {
		t.Error("a report that ended is still notified")
	}
}

// broken is a cache that panics once it is told to.
type broken struct {
	client.Reader
	now atomic.Bool
}

func (b *broken) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if b.now.Load() {
		panic("broken")
	}
	return b.Reader.Get(ctx, key, o, opts...)
}

func TestAPanicEndsTheHold(t *testing.T) {
	cache := &broken{}
	r := start(t, cluster(t), "127.0.0.1:0", func(r *replica) {
		cache.Reader = r.c
		r.report.cached = cache
	})
	answers := r.hold(next(6))
	r.eventually("the first look is over", func() bool {
		r.table.mu.Lock()
		defer r.table.mu.Unlock()
		w := r.table.entries["server-1"].waiter
		w.mu.Lock()
		defer w.mu.Unlock()
		return !w.due
	})
	cache.now.Store(true)
	r.table.notify("server-1")
	if a, ok := <-answers; ok {
		t.Errorf("answered %+v, want 500", a)
	}
	cache.now.Store(false)
	if n := r.report.held.Load(); n != 0 {
		t.Errorf("%d reports are held, want none", n)
	}
	r.say(next(7)) // it goes on
}

func TestOneLookAtATimeFollowsWhatHappened(t *testing.T) {
	w := newWaiter()
	looks := 0
	w.look = func() { looks++ }
	wake := func(over bool) func() { return func() { w.wake(over) } }
	begin := func(over bool) func() {
		return func() {
			if got := w.begin(); got != over {
				t.Errorf("the report is to be answered in any case: %t, want %t", got, over)
			}
		}
	}
	for i, step := range []struct {
		do   func()
		want int
	}{
		{begin(false), 0},
		{wake(false), 0},
		{wake(false), 0},
		{w.rest, 1}, // during the first look
		{wake(false), 1},
		{begin(false), 1},
		{w.rest, 1}, // before the second look began
		{wake(false), 2},
		{begin(false), 2},
		{wake(true), 2},
		{w.rest, 3},
		{begin(true), 3},
		{wake(true), 3},
		{wake(false), 3}, // it was answered
	} {
		if step.do(); looks != step.want {
			t.Errorf("step %d: %d looks were asked for, want %d", i, looks, step.want)
		}
	}
}

// Holds that begin at different times, and may last for different ones, end at few moments.
func TestHoldsEndAtTicks(t *testing.T) {
	const at, most = 1234567891 * time.Nanosecond, 9876543219 * time.Nanosecond
	ends := map[time.Duration]bool{}
	for i := range 1000 {
		began, may := at+time.Duration(i)*time.Millisecond, most-time.Duration(i)*time.Microsecond
		lasts := together(began, may)
		if lasts > may || lasts <= may-tick {
			t.Fatalf("a hold of %s at most lasts %s", may, lasts)
		}
		ends[began+lasts] = true
	}
	if lasts := together(at, tick/2); lasts != tick/2 {
		t.Errorf("a hold of %s at most lasts %s", tick/2, lasts)
	}
	// There are no more within a second.
	if len(ends) > 21 {
		t.Errorf("1000 holds end at %d moments, want 21 at most", len(ends))
	}
}
