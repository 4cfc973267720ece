package report

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

func contextWithCancel(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithCancel(t.Context())
}

func TestTheFirstReportAsksForWhatWas(t *testing.T) {
	o := newOperator(t)
	s := newSidecar(t, o.server.URL).run(t)
	s.Allocate()
	first := o.next()
	want := reportapi.Report{Server: "lobby", Instance: first.report.Instance, Sequence: 1, Restore: true}
	if diff := cmp.Diff(want, first.report); diff != "" {
		t.Errorf("first report (-want +got):\n%s", diff)
	}
	if first.token != "Bearer word" || len(first.report.Instance) < 16 {
		t.Errorf("token %q, instance %q", first.token, first.report.Instance)
	}
	if first.deniedSince != "" {
		t.Errorf("the first report is said to deny since %s", first.deniedSince)
	}
	// Until then nothing that the game says is worth a report.
	s.Ready()
	o.none(3 * pace)
	answer := answerOf("7")
	answer.Restored = &reportapi.Game{State: v1alpha1.GameAllocated, Reported: true, Permission: v1alpha1.DeletionDenied}
	first.tell(answer)
	second := o.next()
	want = reportapi.Report{
		Server: "lobby", Instance: first.report.Instance, Sequence: 2, Seen: "7",
		Game: reportapi.Game{State: v1alpha1.GameReady, Reported: true, Permission: v1alpha1.DeletionDenied},
	}
	if diff := cmp.Diff(want, second.report); diff != "" {
		t.Errorf("second report (-want +got):\n%s", diff)
	}
	if second.deniedSince != "2" {
		t.Errorf("the second report is said to deny since %q, want 2", second.deniedSince)
	}
	o.none(3 * pace)
}

func TestNewsGoBesideTheReportThatIsHeld(t *testing.T) {
	o, s, held := started(t)
	s.Ready()
	news := o.next()
	if news.report.Game.State != v1alpha1.GameReady || news.report.Sequence <= held.report.Sequence {
		t.Errorf("news %+v", news.report)
	}
	held.wantHeld()
	held.tell(answerOf("1"))
	// The newer one is held now, and there is nothing to add.
	o.none(3 * pace)
	// A third takes the place of the oldest, should another replica hold that.
	s.Allocate()
	third := o.next()
	s.Shutdown()
	fourth := o.next()
	news.wantGone()
	third.wantHeld()
	if fourth.report.Game.State != v1alpha1.GameShutdown || !fourth.report.DeletionAllowed {
		t.Errorf("fourth %+v", fourth.report)
	}
	if most := o.most.Load(); most > maxConnections+1 {
		t.Errorf("%d connections at once", most)
	}
}

// News must find out soon that a replica is gone, and what only renews a report needn't.
func TestOnlyAReportWithoutNewsIsHeldForLonger(t *testing.T) {
	o, s, held := started(t)
	held.tell(answerOf("1"))
	renewal := o.next()
	s.Ready()
	news := o.next()
	news.tell(answerOf("2"))
	again := o.next()
	again.refuse(500, "")
	failed := o.next()
	for name, c := range map[string]struct{ got, want string }{
		"the first": {held.hold, ""}, "the same again": {renewal.hold, "20"}, "news": {news.hold, ""},
		"the news again": {again.hold, "20"}, "one after a failure": {failed.hold, ""},
	} {
		if c.got != c.want {
			t.Errorf("%s may be held for %q, want %q", name, c.got, c.want)
		}
	}
}

func TestWhatIsToldArrives(t *testing.T) {
	o, s, held := started(t)
	answer := answerOf("2")
	answer.Shutdown = true
	held.tell(answer)
	next := o.next()
	if next.report.Seen != "2" || !next.report.ShutdownSeen || !next.report.DeletionAllowed {
		t.Errorf("report %+v", next.report)
	}
	if !s.Snapshot().LastAnswer.Shutdown {
		t.Error("the game isn't told to shut down")
	}
	// A report that was overtaken has nothing to tell any more.
	s.Ready()
	newer := o.next()
	answer = answerOf("3")
	answer.Drain = true
	newer.tell(answer)
	for deadline := time.After(within); ; {
		snapshot, changed := s.Watch()
		if snapshot.LastAnswer.Drain {
			break
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatal("drain isn't told")
		}
	}
	next.tell(answerOf("2"))
	if last := o.next(); last.report.Seen != "3" || !s.Snapshot().LastAnswer.Drain {
		t.Errorf("report %+v, told %+v", last.report, s.Snapshot().LastAnswer)
	}
}

func TestABurstIsOneReport(t *testing.T) {
	o, s, _ := started(t)
	began := time.Now()
	const changes = 300
	for i := range changes {
		if err := s.SetPlayers(int64(i%2+1), nil); err != nil {
			t.Fatal(err)
		}
		if err := s.SetAnnotation("n", fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	reports := 0
	for last := ""; last != fmt.Sprint(changes-1); reports++ {
		last = o.next().report.Game.Annotations["agones.dev/sdk-n"]
	}
	// Beside one a pace there is the one by which deletion was denied.
	if most := int(time.Since(began)/pace) + 2; reports > most {
		t.Errorf("%d reports of a burst, want at most %d", reports, most)
	}
}

func TestWhatCannotWait(t *testing.T) {
	state := func(s v1alpha1.GameState) reportapi.Report { return reportapi.Report{Game: reportapi.Game{State: s}} }
	allowed := reportapi.Report{DeletionAllowed: true}
	cases := map[string]struct {
		before, now reportapi.Report
		want        bool
	}{
		"a state":               {state(v1alpha1.GameReady), state(v1alpha1.GameAllocated), true},
		"deletion is denied":    {allowed, reportapi.Report{}, true},
		"deletion is allowed":   {reportapi.Report{}, allowed, false},
		"the shutdown is seen":  {reportapi.Report{}, reportapi.Report{ShutdownSeen: true}, true},
		"a look is replied to":  {reportapi.Report{}, reportapi.Report{Looked: "one"}, true},
		"a look is over":        {reportapi.Report{Looked: "one"}, reportapi.Report{}, false},
		"the shutdown is off":   {reportapi.Report{ShutdownSeen: true}, reportapi.Report{}, false},
		"all after a restoring": {reportapi.Report{Restore: true}, reportapi.Report{}, true},
		"players": {
			state(v1alpha1.GameReady),
			reportapi.Report{Game: reportapi.Game{State: v1alpha1.GameReady, Players: &v1alpha1.PlayersStatus{Current: 1}}},
			false,
		},
	}
	for name, c := range cases {
		if got := urgent(c.before, c.now); got != c.want {
			t.Errorf("%s: urgent %t, want %t", name, got, c.want)
		}
	}
}

// TestTheStepsOfUrgency sees that what is urgent goes now, and other news later.
func TestTheStepsOfUrgency(t *testing.T) {
	s := newSidecar(t, "http://127.0.0.1:1")
	s.TakeAnswer(answerOf("1"))
	r := s.reporter
	r.sequence, r.flights, r.sent = 1, []flight{{sequence: 1}}, time.Now()
	r.last = r.compose(s.Snapshot())
	if err := s.SetAnnotation("n", "1"); err != nil {
		t.Fatal(err)
	}
	if wait := r.step(t.Context(), s.Snapshot()); wait <= 0 || wait > pace || r.sequence != 1 {
		t.Errorf("wait %s for news, sequence %d", wait, r.sequence)
	}
	r.holdOff = time.Now().Add(time.Minute)
	s.Ready()
	if wait := r.step(t.Context(), s.Snapshot()); wait <= pace || r.sequence != 1 {
		t.Errorf("wait %s for urgent news after a failure, sequence %d", wait, r.sequence)
	}
	r.holdOff = time.Time{}
	r.step(t.Context(), s.Snapshot())
	if r.sequence != 2 {
		t.Error("urgent news wait")
	}
	r.land(<-r.landed)
}

// Thousands may have been at a replica that ends, and they don't come to the next one at once: only who has
// news does.
func TestWhoHasNoNewsComesBackLater(t *testing.T) {
	for name, end := range map[string]func(*call){
		"with an answer":    func(c *call) { c.part(answerOf("1")) },
		"without an answer": (*call).breakOff,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			s := newSidecar(t, o.server.URL)
			s.reporter.within = func(most time.Duration) time.Duration {
				if most != reportapi.ReturnTime {
					t.Errorf("it comes back within %s, want %s", most, reportapi.ReturnTime)
				}
				return time.Hour
			}
			s.start(t, o).tell(answerOf("1"))
			end(o.next())
			o.none(5 * pace)
			s.Ready()
			news := o.next()
			if news.report.Game.State != v1alpha1.GameReady {
				t.Errorf("news %+v", news.report)
			}
			// What didn't arrive is said again soon, and there is one report again once it has.
			news.refuse(503, "")
			again := o.next()
			if again.report.Game.State != v1alpha1.GameReady {
				t.Errorf("the news again are %+v", again.report)
			}
			again.tell(answerOf("2"))
			if renewal := o.next(); renewal.report.Seen != "2" {
				t.Errorf("report %+v", renewal.report)
			}
		})
	}
}

func TestWhoHasNoNewsComesBack(t *testing.T) {
	o := newOperator(t)
	s := newSidecar(t, o.server.URL)
	s.reporter.within = func(time.Duration) time.Duration { return 20 * pace }
	s.start(t, o).part(answerOf("2"))
	o.none(2 * pace)
	if back := o.next(); back.report.Seen != "2" || back.hold != "20" {
		t.Errorf("it comes back with %+v, to be held for %q", back.report, back.hold)
	}
}

// A report that was held for too long is renewed before it doesn't count any more.
func TestAnOldReportIsRenewedInTime(t *testing.T) {
	s := newSidecar(t, "http://127.0.0.1:1")
	r := s.reporter
	r.within = func(most time.Duration) time.Duration { return most }
	r.sequence, r.answered = 7, 6
	for held, want := range map[time.Duration]time.Duration{
		time.Second:                         reportapi.ReturnTime,
		reportapi.RenewalTime:               reportapi.ReturnTime,
		reportapi.RenewalTime + time.Minute: reportapi.ReturnTime - time.Minute,
	} {
		now := time.Now()
		r.sent = now.Add(-held)
		r.land(landing{sequence: 7, renews: true, parted: true, err: errors.New("it broke off")})
		if got := r.comeBack.Sub(now); got < want-time.Millisecond || got > want+within {
			t.Errorf("after %s it comes back in %s, want %s", held, got, want)
		}
	}
}

// A dial that fails and an answer that doesn't come show no replica that ends.
func TestOnlyAConnectionThatEndsIsParted(t *testing.T) {
	o := newOperator(t)
	address := o.server.URL
	hangs := newSidecar(t, address).reporter.client
	hangs.patience = 10 * pace
	if _, parted, err := hangs.send(t.Context(), reportapi.Report{Server: "lobby"}, 0, false); err == nil || parted {
		t.Errorf("a report that isn't answered: parted is %t, %v", parted, err)
	}
	closed := newSidecar(t, address).reporter.client
	o.server.Listener.Close()
	if _, parted, err := closed.send(t.Context(), reportapi.Report{Server: "lobby"}, 0, false); err == nil || parted {
		t.Errorf("a dial that is refused: parted is %t, %v", parted, err)
	}
}

// Else a Server would count as silent while its sidecar finds another replica.
func TestAReportCountsUntilTheNextOneComes(t *testing.T) {
	for name, most := range map[string]time.Duration{
		"a renewal that gets no answer":    reportapi.RenewalTime + slack + dialTimeout,
		"a replica that ends with answers": reportapi.RenewalTime + reportapi.ReturnTime + dialTimeout,
	} {
		if most >= reportapi.FreshFor {
			t.Errorf("%s: the next one comes after %s, and the last one counts for %s", name, most, reportapi.FreshFor)
		}
	}
}

// News that may not have arrived are said again soon.
func TestNewsThatBrokeOffComeBackSoon(t *testing.T) {
	o := newOperator(t)
	s := newSidecar(t, o.server.URL)
	s.reporter.within = func(time.Duration) time.Duration { return time.Hour }
	s.start(t, o)
	s.Ready()
	o.next().breakOff()
	if again := o.next(); again.report.Game.State != v1alpha1.GameReady {
		t.Errorf("report %+v", again.report)
	}
}

func TestFailuresAreRetriedAndSaidOnce(t *testing.T) {
	cases := map[string]struct {
		fail func(*call)
		log  string
	}{
		"401":                    {func(c *call) { c.refuse(401, `{"error":"the token has expired"}`) }, "the operator answered 401: the token has expired"},
		"403":                    {func(c *call) { c.refuse(403, `{"error":"the token is for another Pod"}`) }, "the operator answered 403: the token is for another Pod"},
		"404 without a sentence": {func(c *call) { c.refuse(404, `<html>`) }, "the operator answered 404: Not Found"},
		"500":                    {func(c *call) { c.refuse(500, ``) }, "the operator answered 500"},
		"a redirect": {func(c *call) {
			c.answer <- func(w http.ResponseWriter) { w.Header().Set("Location", "/elsewhere"); w.WriteHeader(307) }
		}, "answered 307"},
		"no JSON":                   {func(c *call) { c.refuse(200, `what?`) }, "reading the operator's answer"},
		"no version":                {func(c *call) { c.refuse(200, `{}`) }, "it has no version"},
		"an answer that has no end": {func(c *call) { c.refuse(200, strings.Repeat(" ", reportapi.MaxReportBytes+1)) }, "it has more than"},
		"a hang":                    {func(*call) {}, "context deadline exceeded"},
		"a connection that breaks":  {(*call).breakOff, "sending the report"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t)
			s := newSidecar(t, o.server.URL)
			if name == "a hang" {
				s.reporter.client.patience = time.Second
			}
			s.run(t)
			// The same again isn't said again.
			for range 2 {
				c.fail(o.next())
			}
			o.next().tell(answerOf("1"))
			if o.next().report.Restore {
				t.Error("still restoring")
			}
			if err := s.stop(); err != nil {
				t.Error(err)
			}
			var lines []string
			for len(s.log) > 0 {
				lines = append(lines, <-s.log)
			}
			if len(lines) != 2 || !strings.Contains(lines[0], c.log) || !strings.Contains(lines[1], "Reports arrive again") {
				t.Errorf("log %q, want one line with %q and one that it is over", lines, c.log)
			}
			if strings.Contains(strings.Join(lines, ""), "Bearer") {
				t.Error("the log shows the token")
			}
		})
	}
}

func TestTheTokenIsReadAgain(t *testing.T) {
	o := newOperator(t)
	s := newSidecar(t, o.server.URL).run(t)
	first := o.next()
	if err := os.WriteFile(s.token, []byte("newer"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(s.token, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	first.refuse(401, "")
	for deadline := time.Now().Add(within); ; {
		c := o.next()
		if c.token == "Bearer newer" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the old token is used still")
		}
		c.refuse(401, "")
	}
}

func TestAnOperatorThatStartsAgainIsFoundAgain(t *testing.T) {
	o, s, _ := started(t)
	address := o.server.Listener.Addr().String()
	o.server.CloseClientConnections()
	o.server.Listener.Close()
	s.Ready()
	again := &operator{t: t, calls: make(chan *call, 100), over: make(chan struct{})}
	again.server = httptest.NewUnstartedServer(again)
	again.server.Listener.Close()
	again.server.Listener = listen(t, address)
	again.start()
	t.Cleanup(func() {
		close(again.over)
		again.server.Close()
	})
	c := again.next()
	if c.report.Restore || c.report.Game.State != v1alpha1.GameReady || c.report.Seen != "1" {
		t.Errorf("report %+v", c.report)
	}
}

func TestTheLastWordIsSaidAtTheEnd(t *testing.T) {
	o := newOperator(t)
	s := newSidecar(t, o.server.URL)
	s.reporter.lastTimeout = within
	held := s.start(t, o)
	if err := s.SetPlayers(3, nil); err != nil {
		t.Fatal(err)
	}
	o.next()
	done := make(chan error, 1)
	go func() { done <- s.stop() }()
	last := o.next()
	if last.report.Seen != "" || last.report.Game.Players.Current != 3 {
		t.Errorf("last report %+v", last.report)
	}
	last.tell(answerOf("2"))
	if err := <-done; err != nil {
		t.Error(err)
	}
	held.wantGone()

	// An operator that says nothing is not waited for long.
	_, s, _ = started(t)
	if err := s.stop(); err != nil {
		t.Error(err)
	}
}

func TestAddresses(t *testing.T) {
	for url, good := range map[string]bool{
		"http://operator:8080": true, "https://operator": true, "http://operator:8080/": true,
		"operator:8080": false, "ftp://operator": false, "": false, "http://": false,
	} {
		if _, err := newClient(url, nil); (err == nil) != good {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// An operator of an earlier version refuses a reply to a look that a newer one asked for. The
// report goes on without it.
func TestAReportGoesOnWithoutAReplyThatIsRefused(t *testing.T) {
	o, _, held := started(t)
	looks := answerOf("2")
	looks.Look = "one"
	held.tell(looks)
	reply := o.next()
	if reply.report.Looked != "one" {
		reply = o.next() // the first repeats what was said
	}
	if reply.report.Looked != "one" {
		t.Fatalf("nobody replies: %+v", reply.report)
	}
	reply.refuse(400, `{"error":"unknown field \"looked\""}`)
	for next := o.next(); next.report.Sequence < reply.report.Sequence+3; next = o.next() {
		if next.report.Looked != "" {
			t.Errorf("it replies again to who refuses that: %+v", next.report)
		}
		next.refuse(503, "")
	}
}
