package elasticservice

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
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

// A pod's addresses are asked in order, whichever one the cache has first.
func TestSlicesOfBothFamiliesAreInOrder(t *testing.T) {
	t.Parallel()
	in := func(name string, family discoveryv1.AddressType, address string) discoveryv1.EndpointSlice {
		return discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: name, Labels: map[string]string{
				discoveryv1.LabelManagedBy: wellknown.EndpointSliceController, discoveryv1.LabelServiceName: "lobby-dormouse",
			}},
			AddressType: family,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{address}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "lobby-1", UID: "pod-1"}}},
		}
	}
	all := []discoveryv1.EndpointSlice{
		in("lobby-dormouse-a", discoveryv1.AddressTypeIPv6, "fd00:244::9"), in("lobby-dormouse-c", discoveryv1.AddressTypeIPv4, "10.244.2.10"),
		in("lobby-dormouse-b", discoveryv1.AddressTypeIPv4, "10.244.2.9"),
	}
	r := &Reconciler{Client: listing{slices: all}}
	o := planner.Observed{PrivateName: "lobby-dormouse"}
	if err := r.observeSlices(t.Context(), fixture.Lobby("", fixture.T0), &o); err != nil {
		t.Fatal(err)
	}
	servers, _ := endpoints.ServersOf(o.Sources, endpoints.Pods{})
	if want := []string{"10.244.2.9", "10.244.2.10", "fd00:244::9"}; len(servers) != 1 || !slices.Equal(servers[0].Addresses, want) {
		t.Errorf("the servers are %+v, want one at %v", servers, want)
	}
}

// listing is a cache that has slices.
type listing struct {
	client.Client
	slices []discoveryv1.EndpointSlice
}

func (l listing) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	into.(*discoveryv1.EndpointSliceList).Items = slices.Clone(l.slices)
	return nil
}
