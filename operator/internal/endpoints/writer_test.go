package endpoints

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestPassesBuildOnWhatWasJustWritten(t *testing.T) {
	t.Parallel()
	slice := func(version string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: "lobby", ResourceVersion: version}}
	}
	one, two, three := slice("1"), slice("2"), slice("3")
	var w PendingSlices
	if w.seen(nil); w.current(one) != one || w.current(nil) != nil {
		t.Error("a slice that nobody wrote is not as the cache has it")
	}
	w.add(one, two)
	if w.seen(map[string]*discoveryv1.EndpointSlice{"lobby": one}); w.current(one) != two {
		t.Error("while the cache has the old version, the slice is not what was written")
	}
	w.add(one, three)
	if w.current(one) != three {
		t.Error("the second write over the same cached version is not known")
	}
	// It came back, and somebody changed it since.
	other := slice("4")
	if w.seen(map[string]*discoveryv1.EndpointSlice{"lobby": other}); w.current(other) != other || len(w) > 0 {
		t.Error("what the cache has by now is not believed")
	}
	w.add(one, two)
	if w.seen(nil); w != nil {
		t.Error("the write of a slice that is gone is remembered, or takes memory")
	}
}

// stored is a cluster with a slice, which read reads.
func stored(t *testing.T, funcs interceptor.Funcs) (c client.Client, read func() *discoveryv1.EndpointSlice) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := discoveryv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	is := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "games", Name: "lobby", UID: "uid", Labels: map[string]string{}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	c = fake.NewClientBuilder().WithScheme(scheme).WithObjects(is).WithInterceptorFuncs(funcs).Build()
	return c, func() *discoveryv1.EndpointSlice {
		t.Helper()
		s := &discoveryv1.EndpointSlice{}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(is), s); err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// The rights of an earlier version have no update: a rollback applies them while the newer operator leads.
func TestASliceIsWrittenWithTheRightsOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	c, read := stored(t, interceptor.Funcs{
		Update: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.UpdateOption) error {
			return apierrors.NewForbidden(discoveryv1.Resource("endpointslices"), o.GetName(), errors.New("no update"))
		},
	})
	cached := read()
	want := cached.DeepCopy()
	want.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"192.0.2.1"}}}
	var written PendingSlices
	if err := Sync(t.Context(), c, &written, nil, []discoveryv1.EndpointSlice{*cached}, []*discoveryv1.EndpointSlice{want}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want.Endpoints, read().Endpoints); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Where its watch needn't tell, a write is expected there, and takes no memory beside.
func TestAWriteThatIsExpectedIsNotKept(t *testing.T) {
	t.Parallel()
	c, read := stored(t, interceptor.Funcs{})
	cached := read()
	sync := func(e *Echoes, written *PendingSlices, address string) *discoveryv1.EndpointSlice {
		want := cached.DeepCopy()
		want.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{address}}}
		if err := Sync(t.Context(), c, written, e, []discoveryv1.EndpointSlice{*cached}, []*discoveryv1.EndpointSlice{want}); err != nil {
			t.Fatal(err)
		}
		return read()
	}
	var e Echoes
	var written PendingSlices
	if changed := sync(nil, &written, "10.0.0.1"); e.Heard(time.Now(), changed) || len(written) != 1 {
		t.Errorf("a write that the next pass needs isn't kept, or not heard of: %v", written)
	}
	// The cache doesn't have the first one yet.
	if changed := sync(&e, &written, "10.0.0.2"); !e.Heard(time.Now(), changed) || len(written) != 0 {
		t.Errorf("a write of which the watch need not tell is heard of, or kept: %v", written)
	}
	cached = read()
	if changed := sync(&e, &written, "10.0.0.2"); e.Heard(time.Now(), changed) {
		t.Error("what was written already is written again")
	}
}
