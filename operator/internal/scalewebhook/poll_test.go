package scalewebhook

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

const every = 10 * time.Second

// polled is a client with the channel of those whose questions are done.
func polled(t *testing.T, cluster services) (*Client, *clocktesting.FakePassiveClock, chan Subject) {
	t.Helper()
	done := make(chan Subject, 100)
	clock := clocktesting.NewFakePassiveClock(start)
	return newClient(t, Options{Clock: clock, Services: cluster.lookup, Done: func(s Subject) { done <- s }}), clock, done
}

func subject(name string) Subject { return Subject{Namespace: "games", Name: name, Policy: "0"} }

func TestPollAsksOnceAnIntervalAndNeverWaits(t *testing.T) {
	hookServer := &breakable{}
	c, clock, done := polled(t, services{"games/hook": at("games", "hook", serve(t, hookServer.ServeHTTP))})
	poll := func() Result { return c.Poll(subject("a"), every, Endpoint{Service: hook()}, lobby("games")) }

	first := poll()
	if !first.Time.IsZero() || !first.Pending || !first.Next.Equal(start.Add(every)) {
		t.Errorf("at first it is %+v", first)
	}
	if s := <-done; s != subject("a") {
		t.Errorf("the question of %v is done", s)
	}
	for range 3 {
		if r := poll(); !r.Time.Equal(start) || r.Err != nil || r.Answer.Replicas != 6 || r.Pending || !r.Next.Equal(start.Add(every)) {
			t.Errorf("within the interval it is %+v", r)
		}
	}
	hookServer.broken.Store(true)
	clock.SetTime(start.Add(every))
	if r := poll(); !r.Pending || r.Answer.Replicas != 6 {
		t.Errorf("while it is asked again it is %+v", r)
	}
	<-done
	if r := poll(); ReasonOf(r.Err) != BadStatus || r.Answer != (Answer{}) || !r.Time.Equal(start.Add(every)) {
		t.Errorf("after a failure it is %+v", r)
	}
	if n := hookServer.asked.Load(); n != 2 {
		t.Errorf("it was asked %d times, want 2", n)
	}
}

func TestPollAsksNothingWhileTheCircuitIsOpen(t *testing.T) {
	hookServer := &breakable{}
	hookServer.broken.Store(true)
	c, clock, done := polled(t, services{"games/hook": at("games", "hook", serve(t, hookServer.ServeHTTP))})
	poll := func(name string) Result {
		return c.Poll(subject(name), time.Second, Endpoint{Service: hook()}, lobby("games"))
	}
	now := start
	for range failuresToOpen {
		poll("a")
		<-done
		now = now.Add(time.Second)
		clock.SetTime(now)
	}
	open := poll("a")
	if ReasonOf(open.Err) != CircuitOpen || open.Pending || open.Next.Sub(now) < 3*time.Second {
		t.Fatalf("it isn't open: %+v", open)
	}
	clock.SetTime(now.Add(time.Second))
	if again := poll("a"); again != open {
		t.Errorf("while nothing changed it went from %+v to %+v", open, again)
	}
	if r := poll("b"); ReasonOf(r.Err) != CircuitOpen || r.Pending {
		t.Errorf("for another of the namespace: %+v", r)
	}
	if n := hookServer.asked.Load(); n != failuresToOpen {
		t.Errorf("it was asked %d times, want %d", n, failuresToOpen)
	}
	hookServer.broken.Store(false)
	clock.SetTime(open.Next)
	if r := poll("a"); !r.Pending {
		t.Errorf("at its time no question is asked: %+v", r)
	}
	<-done
	if r := poll("a"); r.Err != nil || r.Answer.Replicas != 6 {
		t.Errorf("after the trial it is %+v", r)
	}
}

func TestAnAnswerOfAFormerEndpointIsNobodys(t *testing.T) {
	reached := make(chan struct{})
	slow := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		reached <- struct{}{}
		<-r.Context().Done()
	})
	c, _, done := polled(t, services{"games/good": at("games", "good", serve(t, scaleTo(3))), "games/slow": at("games", "slow", slow)})
	poll := func(name string) Result { return c.Poll(subject("a"), every, patient(name), lobby("games")) }
	poll("good")
	<-done
	if r := poll("slow"); !r.Pending || !r.Time.IsZero() || r.Answer != (Answer{}) {
		t.Errorf("of a new endpoint it is %+v", r)
	}
	<-reached
	// There and back: the former question ends, and its error isn't the new one's.
	if r := poll("good"); !r.Pending || !r.Time.IsZero() {
		t.Errorf("while the former question ends it is %+v", r)
	}
	poll("slow")
	poll("good")
	<-done
	if r := poll("good"); !r.Pending || !r.Time.IsZero() {
		t.Errorf("when the former question has ended it is %+v", r)
	}
	<-done
	if r := poll("good"); r.Pending || r.Answer.Replicas != 3 {
		t.Errorf("at last it is %+v", r)
	}
}

func TestAMissingServiceIsToldByPoll(t *testing.T) {
	c, _, done := polled(t, nil)
	c.Poll(subject("a"), every, patient("hook"), lobby("games"))
	<-done
	if r := c.Poll(subject("a"), every, patient("hook"), lobby("games")); ReasonOf(r.Err) != ServiceNotFound {
		t.Errorf("it is %+v", r)
	}
}

func TestManyAreAskedWhileSomeHang(t *testing.T) {
	cluster := services{"games/slow": at("games", "slow", serve(t, hanging)), "games/good": at("games", "good", serve(t, scaleTo(3)))}
	done := make(chan Subject, 500)
	c := newClient(t, Options{Services: cluster.lookup, Done: func(s Subject) { done <- s }})
	for i := range 500 {
		name := "good"
		if i%5 == 0 {
			name = "slow"
		}
		c.Poll(subject(strconv.Itoa(i)), every, patient(name), lobby("games"))
	}
	for range 400 {
		s := <-done
		if i, _ := strconv.Atoi(s.Name); i%5 == 0 {
			t.Errorf("%v, which hangs, is done", s)
		}
	}
	c.Close()
	if len(done) != 0 {
		t.Errorf("%d more are done", len(done))
	}
}

func TestForgottenAndIdleSubjectsLeaveNothing(t *testing.T) {
	c, clock, done := polled(t, services{"games/hook": at("games", "hook", serve(t, scaleTo(1)))})
	poll := func(name string, interval time.Duration) {
		c.Poll(subject(name), interval, patient("hook"), lobby("games"))
		<-done
	}
	poll("gone", every)
	poll("idle", every)
	poll("rare", time.Hour)
	c.Forget("games", "gone")
	c.Forget("others", "idle")
	if _, ok := c.polls[subject("gone")]; ok || len(c.polls) != 3-1 || len(c.subjects) != 2 {
		t.Errorf("there are %d", len(c.polls))
	}
	clock.SetTime(start.Add(idleAfter + time.Second))
	poll("new", every)
	if _, ok := c.polls[subject("rare")]; !ok || len(c.polls) != 2 || len(c.subjects) != 2 {
		t.Errorf("after a while there are %d, want the new and the rare one", len(c.polls))
	}
}

func TestStartEndsWithItsContextAndEndsAllQuestions(t *testing.T) {
	reached := make(chan struct{})
	address := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(reached)
		<-r.Context().Done()
	})
	c, _, done := polled(t, services{"games/hook": at("games", "hook", address)})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- c.Start(ctx) }()
	c.Poll(subject("a"), every, patient("hook"), lobby("games"))
	<-reached
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if len(done) != 0 {
		t.Error("somebody is told after the end")
	}
	if r := c.Poll(subject("a"), every, patient("hook"), lobby("games")); ReasonOf(r.Err) != Cancelled || r.Pending {
		t.Errorf("after the end it is %+v", r)
	}
}

func TestCloseWaitsForQuestionsAndClosesConnections(t *testing.T) {
	closed := make(chan struct{})
	srv := httptest.NewUnstartedServer(scaleTo(1))
	srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			close(closed)
		}
	}
	srv.Start()
	t.Cleanup(srv.Close)
	cluster := services{"games/hook": at("games", "hook", srv.Listener.Addr().String())}
	begun, ended := make(chan struct{}), false
	c := newClient(t, Options{Services: func(ctx context.Context, namespace, name string) (*corev1.Service, error) {
		if name == "slow" {
			close(begun)
			<-ctx.Done()
			ended = true
		}
		return cluster.lookup(ctx, namespace, name)
	}})
	if _, err := c.Ask(t.Context(), patient("hook"), lobby("games")); err != nil {
		t.Fatal(err)
	}
	c.Poll(subject("a"), every, patient("slow"), lobby("games"))
	<-begun
	c.Close()
	if !ended {
		t.Error("a question goes on after the end")
	}
	<-closed
}
