package elasticservice

import (
	"errors"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/index"
)

// What a pass has written without news of it isn't undone by what was before: the next pass waits for the cache.
func TestAPassWaitsForTheSlicesThatTheCacheDoesntShow(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), discoveryv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	es := &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby"}, Spec: v1alpha1.ElasticServiceSpec{Service: "lobby"}}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
		Namespace: "games", Name: "lobby", UID: "slice", Labels: map[string]string{discoveryv1.LabelManagedBy: wellknown.ManagedBy},
	}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(slice).
		WithIndex(&discoveryv1.EndpointSlice{}, index.SliceService, func(client.Object) []string { return []string{"lobby"} }).Build()
	cached := &discoveryv1.EndpointSlice{}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(slice), cached); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{Client: c}
	written := cached.DeepCopy()
	written.ResourceVersion += "0" // ten times as much
	r.echoes.Expect(time.Now(), written)
	if err := r.observeSlices(t.Context(), es, &planner.Observed{}); !errors.Is(err, errBehind) {
		t.Errorf("a cache without the write is believed: %v", err)
	}
	r.echoes.Forget(written)
	var o planner.Observed
	if err := r.observeSlices(t.Context(), es, &o); err != nil || len(o.Slices) != 1 {
		t.Errorf("%d slices are observed: %v", len(o.Slices), err)
	}
}
