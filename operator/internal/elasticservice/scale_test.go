package elasticservice

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/test/seen"
)

// watchedAt has each target at a generation, and shows what its spec says, or nil.
type watchedAt struct {
	Targets
	generation int64
	says       *target.Workload
}

func (w *watchedAt) Generation(context.Context, target.Ref) (types.UID, int64, *target.Workload) {
	return "u", w.generation, w.says
}

// scaleReads is an API server that counts how often it is asked for a scale, and has one with a
// selector or without. It counts how often it is asked for a target itself, too.
type scaleReads struct {
	client.Client
	selector string
	reads    int
	gets     int
	// failed is its answer to who asks for a target; nil: the target.
	failed error
	// scaleFailed is its answer to who asks for a scale; nil: the scale.
	scaleFailed error
}

func (s *scaleReads) IsObjectNamespaced(runtime.Object) (bool, error) { return true, nil }

func (s *scaleReads) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	s.gets++
	return s.failed
}

func (s *scaleReads) SubResource(string) client.SubResourceClient { return scaleClient{scaleReads: s} }

type scaleClient struct {
	client.SubResourceClient
	*scaleReads
}

func (c scaleClient) Get(_ context.Context, _, into client.Object, _ ...client.SubResourceGetOption) error {
	c.reads++
	if c.scaleFailed != nil {
		return c.scaleFailed
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&autoscalingv1.Scale{Status: autoscalingv1.ScaleStatus{Selector: c.selector}})
	if u, ok := into.(*unstructured.Unstructured); ok && err == nil {
		u.Object = content
	}
	return err
}

// A scale whose target is watched is read once for each version of the target, and now and then
// where it has no selector yet.
func TestAScaleIsReadWhenItsTargetChanges(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		selector   string
		generation int64
		// want is how often the scale is read in passes at 0 s, 1 s, after selectorRead, and after
		// the target changed.
		want [4]int
	}{
		"it is watched":                      {"app=lobby", 3, [4]int{1, 1, 1, 2}},
		"it is watched, and has no selector": {"", 3, [4]int{1, 1, 2, 3}},
		"it isn't watched":                   {"app=lobby", 0, [4]int{1, 2, 3, 4}},
		"it isn't watched, has no selector":  {"", 0, [4]int{1, 2, 3, 4}},
	} {
		synctest.Test(t, func(t *testing.T) {
			api, targets := &scaleReads{selector: c.selector}, &watchedAt{generation: c.generation}
			r := &Reconciler{Scaler: target.NewScaler(api, api), Targets: targets, Now: time.Now}
			es := &v1alpha1.ElasticService{
				ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby"},
				Spec:       v1alpha1.ElasticServiceSpec{ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: "example.org/v1", Kind: "Arena", Name: "lobby"}},
			}
			var m scaleState
			var got [4]int
			for i, wait := range []time.Duration{0, time.Second, selectorRead, 0} {
				<-time.After(wait)
				if i == 3 && c.generation > 0 {
					targets.generation++
				}
				if scale := r.observeScale(t.Context(), target.Of(es), true, &m); scale.Err != nil {
					t.Fatal(scale.Err)
				}
				got[i] = api.reads
			}
			if got != c.want {
				t.Errorf("%s: it was read %v times, want %v", name, got, c.want)
			}
		})
	}
}

// deployment is a pass over a Deployment's scale.
func deployment(t *testing.T, r *Reconciler, m *scaleState) func(asleep bool) planner.Scale {
	t.Helper()
	return func(asleep bool) planner.Scale {
		return r.observeScale(t.Context(), target.Of(fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(0))), asleep, m)
	}
}

// A new leader's first passes over ten thousand sleeping Deployments ask the API server nothing. Where more
// depends on the answer, or the watch doesn't show what the spec says, there is one call.
func TestADeploymentIsReadInOneCallAtMost(t *testing.T) {
	t.Parallel()
	shown := target.Workload{Selector: "app=lobby", Readiness: v1alpha1.PodReadinessProbe}
	api, targets, m := &scaleReads{}, &watchedAt{generation: 3, says: &shown}, scaleState{}
	see := deployment(t, &Reconciler{Scaler: target.NewScaler(api, api), Targets: targets, Now: time.Now}, &m)
	want := func(what string, gets int) {
		t.Helper()
		if api.gets != gets || api.reads > 0 {
			t.Errorf("%s it was read %d times, and %d times by its scale, want %d", what, api.gets, api.reads, gets)
		}
		api.gets = 0
	}
	if got := see(true); got != (planner.Scale{Selector: "app=lobby", Readiness: v1alpha1.PodReadinessProbe}) {
		t.Errorf("seen is %+v, want what the watch shows", got)
	}
	want("when first seen", 0)
	see(true)
	want("when nothing changed", 0)
	targets.generation++
	if got := see(true); got.Replicas != 1 || got.Readiness != v1alpha1.PodReadinessConnect {
		t.Errorf("seen is %+v, want what the API server has", got)
	}
	want("after a change", 1)
	m.scale.Selector = "app=lobby" // the API server's has none
	m.of = version{}
	see(true)
	want("after a write", 1)
	m = scaleState{}
	see(false)
	want("when first seen awake", 1)
	m, shown.Replicas = scaleState{}, 2
	see(true)
	want("when first seen asleep, and the watch shows replicas", 1)
	m, targets.says = scaleState{}, nil
	see(true)
	want("when first seen, and the watch shows no spec", 1)
	m, targets.generation = scaleState{}, 0
	see(true)
	see(true)
	want("while it isn't watched", 2)
}

// What one pass can't read the next one does.
func TestADeploymentWhoseFirstReadFailsIsReadAgain(t *testing.T) {
	t.Parallel()
	api, m := &scaleReads{failed: errors.New("the API server is gone")}, scaleState{}
	see := deployment(t, &Reconciler{Scaler: target.NewScaler(api, api), Targets: &watchedAt{generation: 3}, Now: time.Now}, &m)
	if scale := see(true); scale.Err == nil {
		t.Error("nothing is said of it")
	}
	api.failed = nil
	if scale := see(true); scale.Err != nil || api.gets != 2 {
		t.Errorf("after %d reads: %v", api.gets, scale.Err)
	}
}

// Who takes the right to scales away, and leaves that to Deployments, is told once the service should
// sleep.
func TestAScaleThatMayNotBeReadIsSaidThoughItsDeploymentMayBe(t *testing.T) {
	t.Parallel()
	lobby := fixture.Lobby(v1alpha1.PhaseFallingAsleep, fixture.At(0))
	api := &scaleReads{scaleFailed: apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments/scale"}, "lobby", errors.New("no rule"))}
	r := &Reconciler{Scaler: target.NewScaler(api, api), Targets: &watchedAt{generation: 3}, Now: time.Now}
	p := &pass{original: lobby, es: lobby, state: &state{}}
	see := deployment(t, r, &p.state.scale)
	if scale := see(false); scale.Err != nil {
		t.Fatal(scale.Err)
	}
	if _, err := r.commitSleep(t.Context(), p); !errors.Is(err, target.ErrForbidden) {
		t.Errorf("the sleep ends with %v", err)
	}
	for range 2 {
		if scale := see(false); !errors.Is(scale.Err, target.ErrForbidden) {
			t.Errorf("the next pass finds %+v, want that the scale may not be read", scale)
		}
	}
	api.scaleFailed = nil
	if scale := see(false); scale.Err != nil {
		t.Errorf("once it may be read: %v", scale.Err)
	}
	if see(false); p.state.scale.scaleOnly {
		t.Error("it is read by its scale for ever")
	}
}

// setReads is an API server with a StatefulSet.
type setReads struct {
	*scaleReads
	set appsv1.StatefulSet
}

func (s *setReads) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	switch into := into.(type) {
	case *appsv1.StatefulSet:
		s.set.DeepCopyInto(into)
	case *unstructured.Unstructured:
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&s.set)
		into.Object = content
		return errors.Join(s.failed, err)
	}
	return s.failed
}

// Nobody may put a target to sleep that loses its disks there, however it was read.
func TestThatATargetLosesItsDisksIsSeen(t *testing.T) {
	t.Parallel()
	api := &setReads{scaleReads: &scaleReads{selector: "app=lobby"}}
	api.set.Spec.VolumeClaimTemplates = make([]corev1.PersistentVolumeClaim, 1)
	keeps := func(policy appsv1.PersistentVolumeClaimRetentionPolicyType) {
		api.set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: policy}
	}
	targets, m := &watchedAt{generation: 3}, scaleState{}
	r := &Reconciler{Scaler: target.NewScaler(api, api), Targets: targets, Now: time.Now}
	ref := target.Ref{ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "lobby"}, Namespace: "games"}
	want := func(what string, want bool) {
		t.Helper()
		if scale := r.observeScale(t.Context(), ref, true, &m); scale.Err != nil || scale.LosesDisks != want {
			t.Errorf("%s: it loses its disks: %t, %v", what, scale.LosesDisks, scale.Err)
		}
		targets.generation++
	}
	targets.says = &target.Workload{Selector: "app=lobby", Readiness: v1alpha1.PodReadinessConnect, LosesDisks: true}
	want("by the watch", true)
	keeps(appsv1.RetainPersistentVolumeClaimRetentionPolicyType)
	want("by itself", false)
	keeps(appsv1.DeletePersistentVolumeClaimRetentionPolicyType)
	m.scaleOnly = true
	want("beside its scale", true)
	ref.APIVersion, api.failed = "example.org/v1", errors.New("no rule")
	want("another one, which can't be read", false)
}

// wakeScaler is a WakeScaler that is a function.
type wakeScaler func(context.Context, target.Ref, target.Replicas) (target.Raised, error)

// RaiseTo implements WakeScaler.
func (f wakeScaler) RaiseTo(ctx context.Context, ref target.Ref, want target.Replicas) (target.Raised, error) {
	return f(ctx, ref, want)
}

// keptAwake is a pass of a service at zero that something keeps awake. No Service has its endpoints.
func keptAwake(f wakeScaler) (*Reconciler, *pass) {
	r := &Reconciler{WakeScaler: f, Events: events.NewFakeRecorder(8)}
	r.Init()
	es := fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(0))
	o := seen.Of(0)
	o.Service = nil
	return r, &pass{original: es, es: es, state: r.stateOf(es), now: fixture.At(0), observed: o, plan: planner.Plan{Raise: true}}
}

// A GameType's Servers and bounds count for it as for a client, which only a WakeScaler knows.
func TestWhatIsKeptAwakeIsWokenByTheWakeScaler(t *testing.T) {
	var ref target.Ref
	r, p := keptAwake(func(_ context.Context, raised target.Ref, _ target.Replicas) (target.Raised, error) {
		ref = raised
		return target.Raised{After: 1}, nil
	})
	if _, ended, err := r.apply(t.Context(), p); ended || err != nil {
		t.Fatalf("the pass has ended: %t, error %v", ended, err)
	}
	if ref != target.Of(p.es) || p.raised.IsZero() {
		t.Errorf("it woke %s, at %s", ref, p.raised)
	}
}

// The endpoints are written after it: they may name a resolver that is gone.
func TestAWakeThatFailsDoesNotEndThePass(t *testing.T) {
	for name, f := range map[string]wakeScaler{
		"an error": func(context.Context, target.Ref, target.Replicas) (target.Raised, error) {
			return target.Raised{}, errors.New("the API server is gone")
		},
		"a webhook that hangs": func(ctx context.Context, _ target.Ref, _ target.Replicas) (target.Raised, error) {
			<-ctx.Done()
			return target.Raised{}, ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, p := keptAwake(f)
				if _, ended, err := r.apply(t.Context(), p); ended || err != nil {
					t.Errorf("the pass has ended: %t, error %v", ended, err)
				}
				if flaw := p.found.Flaw; flaw == nil || !strings.Contains(flaw.Message, "tries again") {
					t.Errorf("the flaw is %v", flaw)
				}
				if !p.raised.IsZero() {
					t.Errorf("it was woken at %s", p.raised)
				}
			})
		})
	}
}
