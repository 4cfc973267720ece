package elasticservice

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/resolvers"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/test/seen"
)

// mute is an API server that says of no object more than that there is some reason not to.
type mute struct {
	client.Client
	err error
	es  *v1alpha1.ElasticService
}

func (m *mute) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if es, ok := o.(*v1alpha1.ElasticService); ok && m.es != nil {
		*es = *m.es
		return nil
	}
	return m.err
}

func podsIn(uids ...types.UID) []discoveryv1.EndpointSlice {
	var s discoveryv1.EndpointSlice
	for _, uid := range uids {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{"10.244.1.1"}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: string(uid), UID: uid},
		})
	}
	return []discoveryv1.EndpointSlice{s}
}

func TestAPodFromBeforeTheSleepComesBackInTheEnd(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "old", errors.New("no rule"))
	for name, c := range map[string]struct {
		err      error
		scaleErr error
		after    time.Duration
	}{
		"nobody will tell":         {forbidden, nil, time.Minute},
		"the scale can't be read":  {nil, target.ErrNotFound, time.Minute},
		"the API server is silent": {errors.New("timeout"), nil, 10 * time.Minute},
		"it is about the scale":    {nil, errors.New("timeout"), 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			api := &mute{err: c.err}
			r := &Reconciler{Scaler: target.NewScaler(api, api)}
			es := fixture.Lobby(v1alpha1.PhaseWaking, fixture.At(0))
			es.Status.PodsBeforeSleep = []types.UID{"old", "gone"}
			m := &state{}
			look := func(after time.Duration) []types.UID {
				o := seen.Of(1)
				o.Scale.Err, o.Sources = c.scaleErr, podsIn("old", "new")
				r.observeUnsettled(t.Context(), fixture.At(after.Seconds()), es, m, &o)
				var out []types.UID
				servers, _ := endpoints.ServersOf(o.Sources, endpoints.Pods{Unsettled: o.Unsettled.UIDs})
				for _, s := range servers {
					if s.Draining {
						out = append(out, types.UID(s.UID))
					}
				}
				if again := !o.Unsettled.Next.IsZero(); again != (len(out) > 0) {
					t.Errorf("after %s: another look %t, left out %v", after, again, out)
				}
				if waits := o.Unsettled.Waits != nil; waits != (after >= time.Second && len(out) > 0) {
					t.Errorf("after %s: told %v", after, o.Unsettled.Waits)
				}
				return out
			}
			for _, after := range []time.Duration{0, time.Second, c.after - time.Second} {
				if got := look(after); !slices.Equal(got, []types.UID{"old"}) {
					t.Errorf("after %s %v are left out, want the old one", after, got)
				}
			}
			if got := look(c.after + maxAskPeriod); len(got) > 0 {
				t.Errorf("in the end %v are left out", got)
			}
		})
	}
}

// The list grows while the target is at zero, and begins anew with the next sleep.
func TestPodsOfATargetAtZeroAreNamed(t *testing.T) {
	r := &Reconciler{}
	es := fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-60))
	es.Status.PodsBeforeSleep = []types.UID{"long-gone"}
	o := seen.Of(0)
	o.Sources = podsIn("a")
	r.observeUnsettled(t.Context(), fixture.At(0), es, &state{}, &o)
	if got := o.Unsettled.List(); !slices.Equal(got, []types.UID{"a"}) {
		t.Errorf("at zero %v are named, want a", got)
	}
	es.Status.Phase, es.Status.PodsBeforeSleep = v1alpha1.PhaseAsleep, o.Unsettled.List()
	o = seen.Of(0)
	o.Sources = podsIn("b")
	r.observeUnsettled(t.Context(), fixture.At(1), es, &state{}, &o)
	if got := o.Unsettled.List(); !slices.Equal(got, []types.UID{"a", "b"}) {
		t.Errorf("later %v are named, want a and b", got)
	}
}

// What put the target to sleep may be under way still, of a leader who has ended since.
func TestAnotherLeadersWriteIsWaitedFor(t *testing.T) {
	r := &Reconciler{Scaler: target.NewScaler(nil, nil)} // nobody is asked
	es := fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(0))
	es.Status.PodsBeforeSleep, es.Status.LastSleepTime, es.Status.AsleepTarget = []types.UID{"old"}, fixture.Micro(fixture.At(0)), &v1alpha1.AsleepTarget{}
	o := seen.Of(1)
	o.Sources = podsIn("old")
	m := &state{}
	r.observeUnsettled(t.Context(), fixture.At(0.1), es, m, &o)
	r.observeUnsettled(t.Context(), fixture.At(2), es, m, &o)
	if !o.Unsettled.UIDs["old"] {
		t.Error("a pod is trusted that a write on its way may end")
	}
}

// A pass that goes by a cache from before another leader's sleep would send clients to the
// pods that the sleep ends.
func TestANewLeaderLooksWhetherASleepIsOver(t *testing.T) {
	es := fixture.Lobby(v1alpha1.PhaseFallingAsleep, fixture.At(0))
	es.ResourceVersion = "1"
	live := es.DeepCopy()
	r := &Reconciler{Live: &mute{es: live}}
	r.Init()
	want := func(what string, want bool) {
		t.Helper()
		if stale, err := r.stale(t.Context(), es); stale != want || err != nil {
			t.Errorf("%s: behind %t, %v; want %t", what, stale, err, want)
		}
	}
	want("nothing has changed", false)
	live.ResourceVersion = "2"
	want("another has gone on", true)
	begun := fixture.At(0)
	r.stateOf(es).sleepBegun = &begun
	want("it is this one's own sleep", false)
	r.stateOf(es).sleepBegun = nil
	es.Status.Phase = v1alpha1.PhaseAwake
	want("no sleep is under way", false)
}

// A resolver that is far behind knows the same phase of an earlier time, and what came in
// between is still to come: then it would take itself to be past the sleep.
func TestAResolverKnowsAPhaseByItsTime(t *testing.T) {
	es := fixture.Lobby(v1alpha1.PhaseFallingAsleep, fixture.At(0))
	earlier, now := fixture.At(-60), fixture.At(0)
	for name, c := range map[string]struct {
		since *time.Time
		want  string
	}{
		"this one":                           {&now, "FallingAsleep"},
		"an earlier one":                     {&earlier, ""},
		"no time, as an older version tells": {nil, "FallingAsleep"},
	} {
		v := resolvers.View{Routes: map[string]resolvers.Route{"es-1": {Phase: "FallingAsleep", PhaseSince: c.since}}}
		if got := endpoints.ResolverOf(&corev1.Pod{}, es, v).Phase; got != c.want {
			t.Errorf("%s: the phase counts as %q, want %q", name, got, c.want)
		}
	}
}
