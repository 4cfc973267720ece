package elasticservice

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/target"
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
				if scale := r.observeScale(t.Context(), es, &m); scale.Err != nil {
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
