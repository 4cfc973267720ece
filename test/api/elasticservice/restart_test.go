package elasticservice_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/api/fixture"
)

// These tests touch what all services share, so that they don't run in parallel.

// leaderIs waits for a leader that passes, and returns the lease's holder.
func leaderIs(t *testing.T, pass func(holder string) bool) string {
	t.Helper()
	var holder string
	fixture.Eventually(t, afterElection, "a leader", func(ctx context.Context) error {
		lease := &coordinationv1.Lease{}
		if err := cluster.client.Get(ctx, client.ObjectKey{Namespace: fixture.SystemNamespace, Name: "operator.dormouse.dev"}, lease); err != nil {
			return fmt.Errorf("read the lease: %w", err)
		}
		if holder = ptr.Deref(lease.Spec.HolderIdentity, ""); !pass(holder) {
			return fmt.Errorf("it is %q", holder)
		}
		return nil
	})
	return holder
}

// isLeader reports whether an operator's controllers run.
func isLeader(ctx context.Context, o *fixture.Operator) (bool, error) {
	values, err := counters(ctx, o, "leader_election_master_status")
	for _, v := range values {
		return v > 0, err
	}
	return false, err
}

// counters are an operator's metrics whose names start so, by name and labels.
func counters(ctx context.Context, o *fixture.Operator, name string) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.Address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the operator for its metrics: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	found := map[string]float64{}
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		series, value, ok := strings.Cut(lines.Text(), "} ")
		var v float64
		if _, err := fmt.Sscan(value, &v); ok && err == nil && strings.HasPrefix(series, name+"{") {
			found[series+"}"] = v
		}
	}
	return found, lines.Err()
}

// writes counts the requests by which the operators' controllers change objects.
// Leases are written by PUT and scales, which nobody asks for here, too.
func writes(ctx context.Context, t *testing.T) map[string]float64 {
	t.Helper()
	sum := map[string]float64{}
	for _, o := range cluster.operators {
		values, err := counters(ctx, o, "rest_client_requests_total")
		if err != nil {
			t.Fatal(err)
		}
		for series, v := range values {
			for _, method := range []string{"PATCH", "POST", "DELETE"} {
				if strings.Contains(series, `method="`+method+`"`) {
					sum[method] += v
				}
			}
		}
	}
	return sum
}

// versions are the resource versions of all that a test's namespace has.
func (w *world) versions() map[string]string {
	w.t.Helper()
	w.seeAll()
	w.mu.Lock()
	defer w.mu.Unlock()
	newest := map[string]change{}
	for _, c := range w.changes {
		key := fmt.Sprintf("%T %s", c.object, c.object.GetName())
		if c.revision > newest[key].revision {
			newest[key] = c
		}
	}
	versions := map[string]string{}
	for key, c := range newest {
		versions[key] = string(c.kind) + " " + c.object.GetResourceVersion()
	}
	return versions
}

// settled makes a sleeping and an awake service, and waits until no endpoint
// lingers.
func settled(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.asleep("asleep")
	w.awake("awake", 1, byPlayers(1))
	w.wantEndpoints("awake", afterLingering, map[string]string{})
	w.want("awake", promptly, ready, hasCondition(conditions.TriggersHealthy, "True", reasons.OK))
	return w
}

func TestPassesThatChangeNothingWriteNothing(t *testing.T) {
	w := settled(t)
	// Earlier tests' objects are still being deleted.
	sent, since := writes(t.Context(), t), time.Now()
	fixture.Eventually(t, afterSettling, "no write for two seconds", func(ctx context.Context) error {
		if now := writes(ctx, t); !maps.Equal(sent, now) {
			sent, since = now, time.Now()
		}
		if silence := time.Since(since); silence < 2*time.Second {
			return fmt.Errorf("none for %s", silence)
		}
		return nil
	})
	before := w.versions()
	for i := range 3 {
		for _, name := range []string{"asleep", "awake"} {
			// The pods' slice is the test's own; each touch makes a pass.
			w.touchService(name, fmt.Sprint(i))
		}
		fixture.Consistently(t, time.Second, "no write", func(ctx context.Context) error {
			if now := writes(ctx, t); !maps.Equal(sent, now) {
				return fmt.Errorf("the operators had sent %v and have %v", sent, now)
			}
			return nil
		})
	}
	after := w.versions()
	for key, version := range before {
		if after[key] != version && !strings.HasPrefix(key, "*v1.Service ") {
			t.Errorf("%s went from %s to %s", key, version, after[key])
		}
	}
}

func (w *world) touchService(name, value string) {
	w.t.Helper()
	s := &corev1.Service{}
	if err := w.read(w.t.Context(), name, s); err != nil {
		w.t.Fatal(err)
	}
	w.edit(s, func() { s.Annotations = map[string]string{"touched": value} })
}

func TestALostLeaderCostsNothingButTime(t *testing.T) {
	w := settled(t)
	before := w.versions()
	statusBefore := w.want("awake", promptly, ready).Status
	var leader, other int
	fixture.Eventually(t, afterElection, "one leader", func(ctx context.Context) error {
		first, err1 := isLeader(ctx, cluster.operators[0])
		second, err2 := isLeader(ctx, cluster.operators[1])
		if err := errors.Join(err1, err2); err != nil || first == second {
			return fmt.Errorf("leading: %v and %v, error %w", first, second, err)
		}
		if leader, other = 0, 1; second {
			leader, other = 1, 0
		}
		return nil
	})
	holder := leaderIs(t, func(string) bool { return true })
	lost := cluster.operators[leader]
	// It has slept before.
	sleeper := w.want("asleep", promptly, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	earlier := client.MergeFrom(sleeper.DeepCopy())
	sleeper.Status.AsleepSeconds, sleeper.Status.Saved = 1000, &v1alpha1.Saved{MilliCPUSeconds: 5000, MebibyteSeconds: 7000}
	if err := cluster.client.Status().Patch(t.Context(), sleeper, earlier); err != nil {
		t.Fatal(err)
	}
	if err := lost.Kill(); err != nil {
		t.Fatal(err)
	}
	// Without a leader, a wake is answered and its server is on its way.
	woken := w.latest()
	if got := w.wake(other, resolverToken(t), "asleep"); got.Replicas != 1 || w.replicas("asleep") != 1 {
		t.Errorf("answered %+v and the target wants %d replicas, want 1", got, w.replicas("asleep"))
	}
	w.servers("asleep", newServer())

	leaderIs(t, func(h string) bool { return h != "" && h != holder })
	since := int64(time.Since(sleeper.Status.PhaseSince.Time).Seconds())
	woke := w.want("asleep", promptly, ready, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe), slept(1000, sleeper.Status.Saved))
	if most := 1000 + int64(time.Since(sleeper.Status.PhaseSince.Time).Seconds()) + 1; woke.Status.AsleepSeconds > most || since > 0 && woke.Status.AsleepSeconds == 1000 {
		t.Errorf("it was asleep for %d s, want more than 1000 and %d at most", woke.Status.AsleepSeconds, most)
	}
	if err := lost.Start(cluster.cleanup); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), promptly)
	defer cancel()
	if err := lost.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	statusAfter := w.want("awake", promptly, ready).Status
	statusBefore.Conditions, statusAfter.Conditions = nil, nil
	if diff := cmp.Diff(statusBefore, statusAfter); diff != "" {
		t.Errorf("status of the awake service:\n%s", diff)
	}
	after := w.versions()
	for key, version := range before {
		if strings.HasPrefix(key, "*v1alpha1.ElasticService ") {
			continue // A new leader has not asked the triggers yet, and says so.
		}
		if after[key] != version && !strings.HasSuffix(key, " asleep") && !strings.Contains(key, " asleep-") {
			t.Errorf("%s went from %s to %s, though nothing happened to it", key, version, after[key])
		}
	}
	if n := w.count(woken, writesTo("asleep")); n != 1 {
		t.Errorf("the woken target was written %d times, want once", n)
	}
	if after["*v1.Service asleep-dormouse"] != before["*v1.Service asleep-dormouse"] {
		t.Error("the private Service was written, though nothing happened to it")
	}
}
