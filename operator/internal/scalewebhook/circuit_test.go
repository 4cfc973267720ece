package scalewebhook

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// breakable is a webhook that can be broken and mended, and counts.
type breakable struct {
	broken atomic.Bool
	asked  atomic.Int32
}

func (b *breakable) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	b.asked.Add(1)
	if b.broken.Load() {
		http.Error(w, "broken", http.StatusInternalServerError)
		return
	}
	scaleTo(6)(w, r)
}

func TestACircuitOpensAfterThreeFailuresAndTriesWithOneQuestion(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(start)
	hookServer := &breakable{}
	hookServer.broken.Store(true)
	address := serve(t, hookServer.ServeHTTP)
	c := newClient(t, Options{Clock: clock, Services: services{"games/hook": at("games", "hook", address), "others/hook": at("others", "hook", address)}.lookup})
	ask := func(namespace string) error {
		_, err := c.Ask(t.Context(), Endpoint{Service: hook()}, lobby(namespace))
		return err
	}
	for i := range 2 {
		if err := ask("games"); ReasonOf(err) != BadStatus {
			t.Fatalf("failure %d: %v", i+1, err)
		}
	}
	var until time.Time
	for range 4 { // the one that opens it, and some that aren't asked
		err := ask("games")
		e, ok := errors.AsType[*Error](err)
		if !ok || e.Reason != CircuitOpen || Cause(err) != BadStatus || !strings.Contains(e.Message, "500") || !strings.Contains(e.Message, "before 2026-03-01T12:00:0") {
			t.Fatalf("the circuit isn't open: %v", err)
		}
		if !until.IsZero() && !e.Until.Equal(until) {
			t.Errorf("its end moved from %v to %v", until, e.Until)
		}
		until = e.Until
	}
	if n := hookServer.asked.Load(); n != 3 {
		t.Errorf("it was asked %d times, want 3", n)
	}
	if open := until.Sub(start); open < 5*time.Second || open > 6*time.Second {
		t.Errorf("it opened for %v", open)
	}
	if err := ask("others"); ReasonOf(err) != BadStatus {
		t.Errorf("another namespace's circuit is no longer its own: %v", err)
	}

	clock.SetTime(until)
	if err := ask("games"); ReasonOf(err) != CircuitOpen {
		t.Errorf("the trial, which failed: %v", err)
	}
	if n := hookServer.asked.Load(); n != 5 {
		t.Errorf("it was asked %d times, want 5", n)
	}
	e, _ := errors.AsType[*Error](ask("games"))
	if again := e.Until.Sub(until); again < 10*time.Second || again > 12*time.Second {
		t.Errorf("it opened for %v the second time", again)
	}
	clock.SetTime(e.Until)
	hookServer.broken.Store(false)
	for range 2 {
		if err := ask("games"); err != nil {
			t.Errorf("the circuit isn't closed: %v", err)
		}
	}
	hookServer.broken.Store(true)
	for i := range 3 {
		if err := ask("games"); (ReasonOf(err) == CircuitOpen) != (i == 2) {
			t.Errorf("after it was closed, failure %d: %v", i+1, err)
		}
	}
}

func TestACircuitsTimesAreBounded(t *testing.T) {
	c := &circuit{}
	now := start
	broken := failure(Refused, "no")
	for range failuresToOpen - 1 {
		pass, _ := c.begin(now)
		_ = pass.end(now, broken)
	}
	var last time.Duration
	for i := range 20 {
		pass, open := c.begin(now)
		if open != nil {
			t.Fatalf("opening %d: no trial at its time: %v", i, open)
		}
		e, _ := errors.AsType[*Error](pass.end(now, broken))
		last = e.Until.Sub(now)
		if last < 5*time.Second || last > 5*time.Minute {
			t.Errorf("opening %d lasts %v", i, last)
		}
		if _, open := c.begin(e.Until.Add(-time.Nanosecond)); open == nil {
			t.Errorf("opening %d let one through before its time", i)
		}
		now = e.Until
	}
	if last < 4*time.Minute {
		t.Errorf("the last lasts %v only", last)
	}
}

func TestOneTrialAtATime(t *testing.T) {
	c := &circuit{}
	broken := failure(Timeout, "no")
	var late []pass
	for range failuresToOpen {
		pass, _ := c.begin(start)
		late = append(late, pass)
	}
	for range failuresToOpen {
		pass, _ := c.begin(start)
		_ = pass.end(start, broken)
	}
	until := c.until
	for _, pass := range late {
		if err := pass.end(start.Add(time.Second), broken); ReasonOf(err) != Timeout || !c.until.Equal(until) {
			t.Errorf("a failure of a question from before it opened changed it: %v", err)
		}
	}
	old, _ := c.begin(until)
	if _, open := c.begin(until); open == nil {
		t.Error("there are two trials")
	}
	if err := old.end(until, cancelled(context.Canceled)); ReasonOf(err) != Cancelled {
		t.Errorf("a trial that was ended: %v", err)
	}
	trial, open := c.begin(until)
	if open != nil {
		t.Fatalf("after a trial that was ended there is no other: %v", open)
	}
	if err := trial.end(until, nil); err != nil || c.state(until) != nil {
		t.Errorf("a good trial doesn't close it: %v", err)
	}
}

func TestQuestionsThatWereEndedSayNothingOfTheWebhook(t *testing.T) {
	c := &circuit{}
	for _, err := range []error{cancelled(context.Canceled), failure(BadEndpoint, "x")} {
		for range 10 {
			pass, open := c.begin(start)
			if open != nil {
				t.Fatalf("the circuit is open: %v", open)
			}
			_ = pass.end(start, err)
		}
	}
}
