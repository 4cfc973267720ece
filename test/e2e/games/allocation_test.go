package games

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
)

// A hundred matches ask at once for a place each on a game that sleeps: its 20 Servers wake, each
// match gets one of the 100 places as they come up, and no place is given twice. Ten callers don't wait
// for that, and nothing is left of them.
//
// It runs by itself: 20 games that start at once leave others nothing of two processors.
func TestAHundredMatchesWakeAGameAndArePlaced(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), suite.TestTimeout)
	t.Cleanup(cancel)
	const servers, capacity, matches, gone = 20, 5, 100, 10
	offer(ctx, t, "duel", func(s *v1alpha1.GameTypeSpec) {
		*s.Replicas = servers
		s.Template.Spec.Players.Capacity = capacity
		s.Sleep = &v1alpha1.SleepSpec{After: &metav1.Duration{Duration: 5 * time.Second}}
	})
	key := client.ObjectKey{Namespace: hostingNamespace, Name: "duel"}
	if _, err := suite.Cluster.WaitPhase(ctx, key, v1alpha1.PhaseAsleep, v1alpha1.ModeProxy); err != nil {
		t.Fatal(err)
	}
	p := newPanel(ctx, t)
	type answer struct {
		match  int
		status int
		body   map[string]any
		err    error
	}
	answers := make(chan answer, matches)
	var calls sync.WaitGroup
	for n := range matches {
		calls.Go(func() {
			call, cancel := context.WithCancel(ctx)
			defer cancel()
			if n < gone {
				// They give up while the game boots.
				defer time.AfterFunc(300*time.Millisecond, cancel).Stop()
			}
			a := answer{match: n}
			// Twenty games start at once, on a machine that may be busy.
			a.status, a.body, a.err = p.try(call, "/api/v1/allocate?wait=8m", fmt.Sprintf(`{"session":"match-%d","target":"duel","players":1}`, n))
			answers <- a
		})
	}
	calls.Wait()
	close(answers)
	places := map[string]int{}
	for a := range answers {
		switch {
		case a.match < gone && a.err == nil && a.status == http.StatusOK:
			t.Errorf("match %d was served before it gave up: the game didn't sleep", a.match)
		case a.match < gone:
		case a.err != nil || a.status != http.StatusOK:
			t.Errorf("match %d: answered %d %v (%v)", a.match, a.status, a.body, a.err)
		default:
			places[fmt.Sprint(a.body["server"])]++
		}
	}
	all := 0
	for server, n := range places {
		all += n
		if n > capacity {
			t.Errorf("%s has %d matches, and %d places", server, n, capacity)
		}
	}
	if all != matches-gone {
		t.Errorf("%d matches have a place, want %d", all, matches-gone)
	}
	var left v1alpha1.AllocationList
	if err := suite.Cluster.Client.List(ctx, &left, client.InNamespace(hostingNamespace)); err != nil {
		t.Fatal(err)
	}
	if len(left.Items) != matches-gone {
		t.Errorf("there are %d Allocations, want one for each of %d matches", len(left.Items), matches-gone)
	}
	// The same match again has the same Server, and is let go once.
	status, body, err := p.try(ctx, "/api/v1/allocate", `{"session":"match-50","target":"duel","players":1}`)
	if err != nil || status != http.StatusOK || body["existed"] != true {
		t.Errorf("the same match again: answered %d %v (%v)", status, body, err)
	}
	for n := gone; n < matches; n++ {
		p.do(ctx, http.MethodPost, "/api/v1/allocate/release", fmt.Sprintf(`{"session":"match-%d"}`, n))
	}
	if status, body := p.call(ctx, http.MethodPost, "/api/v1/allocate/release", `{"session":"match-50"}`); status != http.StatusNotFound {
		t.Errorf("released once more: answered %d %v", status, body)
	}
	if _, err := suite.Cluster.WaitPhase(ctx, key, v1alpha1.PhaseAsleep, v1alpha1.ModeProxy); err != nil {
		t.Errorf("once all matches are over: %v", err)
	}
}

// try makes a call that may be given up.
func (p *panel) try(ctx context.Context, path, body string) (int, map[string]any, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Authorization", "Bearer "+p.token)
	request.Header.Set("Content-Type", "application/json")
	answer, err := p.http.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	read := map[string]any{}
	return answer.StatusCode, read, json.NewDecoder(answer.Body).Decode(&read)
}
