package elasticservice

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/test/seen"
)

// watchedAt has each target at a generation.
type watchedAt struct {
	Targets
	generation int64
}

func (w *watchedAt) Generation(context.Context, target.Ref) (types.UID, int64) {
	return "u", w.generation
}

// scaleReads is an API server that counts how often it is asked for a scale, and has one with a
// selector or without.
type scaleReads struct {
	client.Client
	selector string
	reads    int
}

func (s *scaleReads) IsObjectNamespaced(runtime.Object) (bool, error) { return true, nil }

func (s *scaleReads) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return nil
}

func (s *scaleReads) SubResource(string) client.SubResourceClient { return scaleClient{scaleReads: s} }

type scaleClient struct {
	client.SubResourceClient
	*scaleReads
}

func (c scaleClient) Get(_ context.Context, _, into client.Object, _ ...client.SubResourceGetOption) error {
	c.reads++
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
			r := &Reconciler{Scaler: target.NewScaler(api), Targets: targets, Now: time.Now}
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
				if scale := r.observeScale(t.Context(), target.Of(es), &m); scale.Err != nil {
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
