package scalewebhook

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// patient is an endpoint with the longest timeout. No test waits for it.
func patient(name string) Endpoint {
	return Endpoint{Service: &ServiceReference{Name: name}, Timeout: MaxTimeout}
}

func TestAHangingWebhookDelaysNobodyElse(t *testing.T) {
	reached := make(chan struct{}, 10*perNamespace)
	slow := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		reached <- struct{}{}
		<-r.Context().Done()
	})
	cluster := services{"games/good": at("games", "good", serve(t, scaleTo(3))), "others/good": at("others", "good", serve(t, scaleTo(4)))}
	for i := range perNamespace/perEndpoint + 1 {
		name := fmt.Sprintf("slow%d", i)
		cluster["games/"+name] = at("games", name, slow)
	}
	c := newClient(t, Options{Services: cluster.lookup})
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	hang := func(name string, questions int) {
		for range questions {
			wait.Go(func() {
				if _, err := c.Ask(ctx, patient(name), lobby("games")); ReasonOf(err) != Cancelled {
					t.Errorf("a question to a hanging webhook: %v", err)
				}
			})
		}
	}
	// One hanging endpoint takes its part and no more, however many ask it.
	hang("slow0", 3*perEndpoint)
	for range perEndpoint {
		<-reached
	}
	if _, err := c.Ask(t.Context(), patient("good"), lobby("games")); err != nil {
		t.Errorf("in the same namespace: %v", err)
	}
	// A namespace full of them leaves others alone.
	for i := range perNamespace / perEndpoint {
		hang(fmt.Sprintf("slow%d", i+1), 3*perEndpoint)
	}
	for range perNamespace - perEndpoint {
		<-reached
	}
	if _, err := c.Ask(t.Context(), patient("good"), lobby("others")); err != nil {
		t.Errorf("in another namespace: %v", err)
	}
	if n := len(reached); n != 0 {
		t.Errorf("%d more than %d questions of a namespace are asked", n, perNamespace)
	}
}

func TestThoseWhoWaitForAFailingEndpointAreToldWhenItsCircuitOpens(t *testing.T) {
	var asked atomic.Int32
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked.Add(1)
		http.Error(w, "no", http.StatusInternalServerError)
	})
	c := newClient(t, Options{Services: services{"games/hook": at("games", "hook", address)}.lookup})
	var wait sync.WaitGroup
	for range 200 {
		wait.Go(func() {
			if _, err := c.Ask(t.Context(), patient("hook"), lobby("games")); err == nil {
				t.Error("there is an answer")
			}
		})
	}
	wait.Wait()
	if n := asked.Load(); n > failuresToOpen+perEndpoint {
		t.Errorf("200 waited, and %d asked", n)
	}
}

func TestWaitingEndsWithTheContext(t *testing.T) {
	c := newClient(t, Options{Services: services{"games/hook": at("games", "hook", serve(t, scaleTo(1)))}.lookup})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Ask(ctx, patient("hook"), lobby("games")); ReasonOf(err) != Cancelled {
		t.Errorf("the error is %v", err)
	}
	// Nothing is left taken: all places can be had.
	var wait sync.WaitGroup
	for range 3 * perEndpoint {
		wait.Go(func() {
			if _, err := c.Ask(t.Context(), patient("hook"), lobby("games")); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
}

func TestWhoGivesUpItsTurnLeavesNothingTaken(t *testing.T) {
	c := newClient(t, Options{Services: services{"games/hook": at("games", "hook", serve(t, scaleTo(1)))}.lookup})
	for range perNamespace {
		if err := c.ofNamespace.Acquire(t.Context(), "games"); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 2 * perEndpoint {
		if _, err := c.Ask(ctx, patient("hook"), lobby("games")); ReasonOf(err) != Cancelled {
			t.Errorf("the error is %v", err)
		}
	}
	for range perNamespace {
		c.ofNamespace.Release("games")
	}
	if _, err := c.Ask(t.Context(), patient("hook"), lobby("games")); err != nil {
		t.Error(err)
	}
}

func TestEndpointsAreBoundedAndForgotten(t *testing.T) {
	table := newEndpoints(4, 2, 0)
	create := func() (*http.Transport, error) { return &http.Transport{}, nil }
	key := func(namespace, url string) endpointKey { return endpointKey{namespace: namespace, url: url} }
	take := func(now time.Time, namespace, url string) *endpointState {
		t.Helper()
		s, err := table.acquire(now, key(namespace, url), create)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	now := start
	for _, url := range []string{"1", "2", "3"} {
		now = now.Add(time.Second)
		table.release(now, take(now, "games", url))
	}
	if len(table.all) != 2 || table.all[key("games", "1")] != nil {
		t.Errorf("a namespace has %d endpoints, and the oldest still: %t", len(table.all), table.all[key("games", "1")] != nil)
	}
	busy := []*endpointState{take(now, "games", "2"), take(now, "games", "3")}
	if _, err := table.acquire(now, key("games", "4"), create); ReasonOf(err) != Busy {
		t.Errorf("a third one of a namespace whose two are asked: %v", err)
	}
	take(now, "others", "1")
	table.release(now, take(now, "others", "2"))
	take(now, "more", "1")
	if len(table.all) != 4 || table.all[key("others", "2")] != nil {
		t.Errorf("there are %d endpoints, and not those that are asked", len(table.all))
	}
	if _, err := table.acquire(now, key("last", "1"), create); ReasonOf(err) != Busy {
		t.Errorf("a fifth one where four are asked: %v", err)
	}
	table.release(now, busy[0])
	now = now.Add(idleAfter)
	take(now, "more", "1")
	if table.all[key("games", "2")] != nil || table.by["games"] != 1 {
		t.Errorf("an idle one is remembered after %v: %v", idleAfter, table.by)
	}
}

// Namespaces that have all places between them, and ask without end, keep no others out.
func TestNamespacesFullOfSlowWebhooksKeepNoOthersOut(t *testing.T) {
	table := newEndpoints(4, 3, 2)
	create := func() (*http.Transport, error) { return &http.Transport{}, nil }
	take := func(namespace, url string) (*endpointState, error) {
		return table.acquire(start, endpointKey{namespace: namespace, url: url}, create)
	}
	var asked []*endpointState
	for _, of := range [][2]string{
		{"hog-1", "1"}, {"hog-1", "2"}, {"hog-2", "1"}, {"hog-2", "2"}, // all four places
		{"small", "1"}, {"small", "2"}, {"other", "1"},
	} {
		s, err := take(of[0], of[1])
		if err != nil {
			t.Errorf("endpoint %s of %s: %v", of[1], of[0], err)
			continue
		}
		asked = append(asked, s)
	}
	for _, namespace := range []string{"hog-1", "small"} {
		if _, err := take(namespace, "3"); ReasonOf(err) != Busy {
			t.Errorf("a third one of %s beyond all places: %v", namespace, err)
		}
	}
	for _, s := range asked {
		table.release(start, s)
	}
	if len(table.all) != table.most {
		t.Errorf("once none is asked there are %d endpoints, want %d", len(table.all), table.most)
	}
}
