package informer

import (
	"encoding/json"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/valyala/fasthttp"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/informerapi"
)

// asyncCall makes an Async call for the first service of namespace games, and tells how long its answer took.
func (s *storm) asyncCall(t *testing.T) (answer informerapi.WakeResponse, took time.Duration) {
	t.Helper()
	began := time.Now()
	answer, err := s.Wake(t.Context(), informerapi.WakeRequest{Count: 1, Svc: serviceName("games", 0), Namespace: "games", Async: true})
	if err != nil {
		t.Error(err)
	}
	return answer, time.Since(began)
}

// stampOf is the status's lastWakeTime, which the cache doesn't have in these tests before it is written.
func (s *storm) stampOf(t *testing.T) time.Time {
	t.Helper()
	es := &v1alpha1.ElasticService{}
	if err := s.client.Get(t.Context(), types.NamespacedName{Namespace: "games", Name: serviceName("games", 0)}, es); err != nil {
		t.Fatal(err)
	}
	if es.Status.LastWakeTime == nil {
		return time.Time{}
	}
	return es.Status.LastWakeTime.Time
}

// Whoever asks for it has the answer once the target is scaled, and finds in the status what that has announced.
func TestAnAsyncCallIsAnsweredBeforeItsStamp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStorm(t, map[string]int{"games": 1})
		s.takes, s.stampTakes = func(string) time.Duration { return 100 * time.Millisecond }, 300*time.Millisecond
		<-time.After(time.Nanosecond) // statuses have microseconds
		var beside sync.WaitGroup
		beside.Go(func() {
			<-time.After(50 * time.Millisecond)
			if answer, took := s.asyncCall(t); took != 350*time.Millisecond || answer.LastWakeTime != nil {
				t.Errorf("one who joins is answered %+v after %s, want after the stamp", answer, took)
			}
		})
		answer, took := s.asyncCall(t)
		if took != 100*time.Millisecond || answer.Phase != string(v1alpha1.PhaseWaking) || answer.Replicas != 1 || answer.LastWakeTime == nil || answer.LastSleepTime != nil {
			t.Fatalf("it is answered %+v after %s; want that it wakes, with the time of the wake alone, once it is scaled", answer, took)
		}
		if !s.stampOf(t).IsZero() {
			t.Error("it is stamped by then, and so this tests nothing")
		}
		beside.Wait()
		if stamp := s.stampOf(t); !stamp.Equal(*answer.LastWakeTime) {
			t.Errorf("it is stamped %s, and %s was announced", stamp, answer.LastWakeTime)
		}
		<-time.After(remember + time.Millisecond)
		if answer, took := s.asyncCall(t); took != 300*time.Millisecond || answer.LastWakeTime != nil || len(s.raised) != 1 {
			t.Errorf("the next call is answered %+v after %s, and the target was raised %d times; want after the stamp, and once", answer, took, len(s.raised))
		}
	})
}

// The stamp is made by the next call where it fails after the answer.
func TestAStampThatFailsAfterAnAsyncAnswerIsMadeByTheNextCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStorm(t, map[string]int{"games": 1})
		s.stampTakes = 300 * time.Millisecond
		s.stampFails.Store(true)
		if answer, took := s.asyncCall(t); took != 0 || answer.LastWakeTime == nil {
			t.Fatalf("it is answered %+v after %s, want at once", answer, took)
		}
		<-time.After(time.Second)
		s.stampFails.Store(false)
		if answer, took := s.asyncCall(t); took != 300*time.Millisecond || answer.LastWakeTime != nil || len(s.raised) != 1 || s.stampOf(t).IsZero() {
			t.Errorf("the next call is answered %+v after %s, stamped %s, and the target was raised %d times; want after the stamp, and once", answer, took, s.stampOf(t), len(s.raised))
		}
	})
}

// A resolver asks for it by a header, which operators that don't know it ignore.
func TestACallIsAsyncByItsHeader(t *testing.T) {
	t.Parallel()
	for header, async := range map[string]bool{"respond-async": true, "Respond-Async": true, "": false, "return=minimal": false} {
		t.Run(header, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newStorm(t, map[string]int{"games": 1})
				s.stampTakes = 300 * time.Millisecond
				rc := wakeCall()
				rc.Request.Header.Set("Prefer", header)
				began := time.Now()
				s.handler().serve(rc)
				var answer informerapi.WakeResponse
				if err := json.Unmarshal(rc.Response.Body(), &answer); err != nil || rc.Response.StatusCode() != fasthttp.StatusAccepted {
					t.Fatalf("it is answered %d %s: %v", rc.Response.StatusCode(), rc.Response.Body(), err)
				}
				if early := time.Since(began) == 0; early != async || (answer.LastWakeTime != nil) != async {
					t.Errorf("it is answered %s after %s, want early: %t", rc.Response.Body(), time.Since(began), async)
				}
				<-time.After(time.Second)
			})
		})
	}
}

// Where the target wasn't at zero only the stamp tells what became of a sleep.
func TestAnAsyncCallWaitsForTheStampThatMayStopASleep(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		phase    v1alpha1.Phase
		replicas int32
	}{
		"awake":                     {v1alpha1.PhaseAwake, 2},
		"falling asleep":            {v1alpha1.PhaseFallingAsleep, 2},
		"asleep, and not at zero":   {v1alpha1.PhaseAsleep, 2},
		"waking, and at zero still": {v1alpha1.PhaseWaking, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := time.Now()
			status := v1alpha1.ElasticServiceStatus{Phase: c.phase, LastSleepTime: micro(now.Add(-time.Hour).Truncate(time.Microsecond))}
			w := waker(t, status, status, &scaled{replicas: c.replicas}, &now)
			answer, err := w.Wake(t.Context(), informerapi.WakeRequest{Count: 1, Svc: "lobby", Namespace: "games", Async: true})
			if err != nil || answer.LastWakeTime != nil || answer.LastSleepTime == nil || !answer.LastSleepTime.Equal(status.LastSleepTime.Time) {
				t.Errorf("it is answered %+v, %v; want the last sleep, as of the stamp", answer, err)
			}
		})
	}
}
