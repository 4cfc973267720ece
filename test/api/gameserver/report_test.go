package gameserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/reportapi"
)

func TestAReportWantsTheTokenOfItsServersPod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two := w.game("lobby-1"), w.game("lobby-2")
	for replica := range cluster.operators {
		one.say(replica, one.report(1))
		two.say(replica, two.report(1))
	}
	body := encode(t, one.report(2, players(9)))
	for name, c := range map[string]struct {
		token, sentence string
		code            int
	}{
		"no token":                  {"", "no bearer token", http.StatusUnauthorized},
		"garbage":                   {"garbage", "malformed", http.StatusUnauthorized},
		"another audience":          {w.token("example.com", one.pod), "audience", http.StatusUnauthorized},
		"the API server's audience": {w.token("", one.pod), "audience", http.StatusUnauthorized},
		"a token of no Pod":         {w.token(wellknown.TokenAudience, nil), "bound to no Pod", http.StatusUnauthorized},
		"another Server's":          {two.token, "Server lobby-2", http.StatusForbidden},
		"the operator's own":        {cluster.operators[0].Access.Token, "not a Server's", http.StatusForbidden},
	} {
		t.Run(name, func(*testing.T) {
			for replica := range cluster.operators {
				one.refused(replica, c.token, body, c.code, c.sentence)
			}
		})
	}
	if err := w.c.Delete(t.Context(), one.pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	w.eventually("another Pod", func(ctx context.Context) error {
		pod := one.pod.DeepCopy()
		if err := w.c.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil || pod.UID == one.pod.UID {
			return fmt.Errorf("the old one is there, or none: %w", err)
		}
		return nil
	})
	for replica := range cluster.operators {
		w.eventually("the dead Pod's token is refused", func(ctx context.Context) error {
			got, err := call(ctx, replica, http.MethodPost, reportapi.ReportPath, one.token, encode(t, one.report(3, players(9), func(r *reportapi.Report) { r.Seen = "x" })))
			if err == nil && got.code != http.StatusUnauthorized {
				err = fmt.Errorf("answered %d %s", got.code, got.body)
			}
			return err
		})
	}
	if p := one.server(t.Context()).Status.Players; p != nil && p.Current == 9 {
		t.Error("what was refused was written")
	}
}

func TestABodyIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.game("lobby-1")
	g.say(0, g.report(1))
	good := string(encode(t, g.report(2)))
	for name, c := range map[string]struct {
		body, sentence string
		code           int
	}{
		"half a body":           {good[:len(good)-1], "one JSON object", http.StatusBadRequest},
		"a state that is none":  {strings.Replace(good, "Ready", "Running", 1), "game.state", http.StatusBadRequest},
		"negative players":      {string(encode(t, g.report(2, players(-1)))), "negative", http.StatusBadRequest},
		"a stranger's label":    {strings.Replace(good, `"state"`, `"labels":{"app":"x"},"state"`, 1), "agones.dev/sdk-", http.StatusBadRequest},
		"a value twice":         {strings.Replace(good, `"state"`, `"lists":{"a":{"capacity":2,"values":["x","x"]}},"state"`, 1), "twice", http.StatusBadRequest},
		"a counter too high":    {strings.Replace(good, `"state"`, `"counters":{"a":{"capacity":2,"count":3}},"state"`, 1), "capacity", http.StatusBadRequest},
		"more than is taken up": {strings.Replace(good, `"state"`, `"message":"`+strings.Repeat("x", 5000)+`","state"`, 1), "game.message", http.StatusBadRequest},
	} {
		t.Run(name, func(*testing.T) { g.refused(0, g.token, []byte(c.body), c.code, c.sentence) })
	}
	// As large as the API server takes them.
	lists := map[string]v1alpha1.List{}
	for i := range 4 {
		list := v1alpha1.List{Capacity: 1000}
		for j := range 1000 {
			list.Values = append(list.Values, fmt.Sprintf("%0128d", j))
		}
		lists[fmt.Sprintf("list-%d", i)] = list
	}
	g.say(0, g.report(3, func(r *reportapi.Report) { r.Game.Lists = lists }))
	w.eventually("the lists are written", func(ctx context.Context) error {
		if got := g.server(ctx).Status.Lists["list-3"].Values; len(got) != 1000 {
			return fmt.Errorf("%d values", len(got))
		}
		return nil
	})
}

func TestAHeldReportIsToldOfADrainAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.game("lobby-1")
	var sequence uint64
	// Somebody plays. An empty Server that is drained is deleted, and its sidecar asked for a last
	// look, of which the report could be told before this replica has seen the drain.
	seen := g.steady(1, &sequence, players(1))
	type timedAnswer struct {
		a  reportapi.Answer
		at time.Time
	}
	answers := make(chan timedAnswer, 1)
	go func() {
		a, _ := g.say(1, g.report(sequence+1, players(1), func(r *reportapi.Report) { r.Seen = seen }))
		answers <- timedAnswer{a, time.Now()}
	}()
	select {
	case got := <-answers:
		t.Fatalf("answered %+v before anything happened", got.a)
	case <-time.After(500 * time.Millisecond):
	}
	began := time.Now()
	g.edit(func(s *v1alpha1.Server) { s.Spec.Drain = true })
	got := <-answers
	if took := got.at.Sub(began); !got.a.Drain || got.a.Shutdown || took > reportapi.HoldTime/2 {
		t.Errorf("told %+v after %s; want drain alone, long before the report would be answered anyway", got.a, took)
	}
}

func TestWhatAGameSaidIsRestoredByAnyReplica(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.game("lobby-1")
	g.say(0, g.report(1, players(7), func(r *reportapi.Report) {
		r.DeletionAllowed, r.Game.State, r.Game.Permission = false, v1alpha1.GameAllocated, v1alpha1.DeletionDenied
		r.Game.Labels = map[string]string{"agones.dev/sdk-map": "dust"}
		r.Game.Counters = map[string]v1alpha1.Counter{"rooms": {Count: 1, Capacity: 4}}
	}))
	for replica := range cluster.operators {
		w.eventually("the game is restored", func(context.Context) error {
			a, _ := g.say(replica, g.report(0, func(r *reportapi.Report) { r.Instance, r.Restore = "two", true })) //nolint:contextcheck // it takes the test's own
			got := a.Restored
			if got == nil || got.State != v1alpha1.GameAllocated || got.Permission != v1alpha1.DeletionDenied || got.Players == nil || got.Players.Current != 7 ||
				got.Labels["agones.dev/sdk-map"] != "dust" || got.Counters["rooms"].Count != 1 {
				return fmt.Errorf("restored %+v", got)
			}
			return nil
		})
	}
}

func TestChangesAreWrittenTogether(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.game("lobby-1")
	var sequence uint64
	g.steady(0, &sequence)
	writes := g.follow()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	for i := range 100 {
		sequence++
		// The answers are not waited for: a newer report ends an older one.
		body := encode(t, g.report(sequence, players(int32(i+1)), func(r *reportapi.Report) { r.Seen = "none" }))
		if got, err := call(t.Context(), 0, http.MethodPost, reportapi.ReportPath, g.token, body); err != nil || got.code != http.StatusOK {
			t.Fatalf("answered %d %s, %v", got.code, got.body, err)
		}
		<-tick.C
	}
	took := time.Since(began)
	w.eventually("the last change is written", func(ctx context.Context) error {
		if p := g.server(ctx).Status.Players; p == nil || p.Current != 100 {
			return fmt.Errorf("players are %+v", p)
		}
		return nil
	})
	if n, most := writes.count(), 3+int((took-time.Second)/time.Second); n > most || n == 0 {
		t.Errorf("100 changes within %s were written %d times, want at most %d", took, n, most)
	}
}

func TestAReportThatChangesNothingWritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.game("lobby-1")
	writes := g.follow()
	// While the game starts there is nothing to write.
	for i := range uint64(5) {
		g.say(int(i)%2, g.report(i+1, func(r *reportapi.Report) { r.Game.State = v1alpha1.GameStarting }))
	}
	g.say(0, g.report(6))
	w.eventually("the game is Ready", func(ctx context.Context) error {
		if game := g.server(ctx).Status.Game; game == nil || game.State != v1alpha1.GameReady {
			return errors.New("it isn't")
		}
		return nil
	})
	sequence := uint64(6)
	for replica := range cluster.operators {
		g.steady(replica, &sequence)
	}
	if n := writes.count(); n != 1 {
		t.Errorf("%d writes, want one, of the game's being Ready", n)
	}
}

func TestADenialIsWrittenAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.game("lobby-1")
	g.say(0, g.report(1, players(0)))
	w.eventually("the game is Ready", func(ctx context.Context) error {
		if s := g.server(ctx).Status; s.Game == nil || !s.DeletionAllowed {
			return errors.New("it isn't")
		}
		return nil
	})
	began := time.Now()
	g.say(0, g.report(2, players(1), func(r *reportapi.Report) { r.DeletionAllowed = false }))
	w.eventually("the denial is written", func(ctx context.Context) error {
		if g.server(ctx).Status.DeletionAllowed {
			return errors.New("it isn't")
		}
		return nil
	})
	if took := time.Since(began); took > reportapi.HoldTime/2 {
		t.Errorf("it was written after %s, want at once", took)
	}
}

func TestReplicasTellEachOtherOfRecentReports(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.game("lobby-1", func(s *v1alpha1.Server) { s.Labels = map[string]string{wellknown.FleetLabel: "lobby"} })
	g.say(0, g.report(1, players(1)))
	path := reportapi.RecentPath + "?namespace=" + w.ns + "&owner=Fleet/lobby"
	got, err := call(t.Context(), 0, http.MethodGet, path, cluster.operators[1].Access.Token, nil)
	want := fmt.Sprintf(`"name":"lobby-1","podUID":"%s"`, g.pod.UID)
	if err != nil || got.code != http.StatusOK || !strings.Contains(string(got.body), want) || !strings.Contains(string(got.body), `"busy":true`) {
		t.Errorf("answered %d %s, %v; want %s, busy", got.code, got.body, err, want)
	}
	for name, token := range map[string]string{"a sidecar": g.token, "nobody": ""} {
		if got, err := call(t.Context(), 0, http.MethodGet, path, token, nil); err != nil || got.code != http.StatusUnauthorized {
			t.Errorf("%s was answered %d %s, %v; want 401", name, got.code, got.body, err)
		}
	}
}
