package endpoints

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
