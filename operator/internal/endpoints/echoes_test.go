package endpoints

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAWriteIsHeardOfOnceAndOthersWritesAreNot(t *testing.T) {
	t.Parallel()
	slice := func(version string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{UID: "uid", ResourceVersion: version}}
	}
	var e Echoes
	if e.Heard(slice("1")) {
		t.Error("what nobody wrote counts as written")
	}
	e.Expect(slice("2"))
	if !e.Heard(slice("2")) {
		t.Error("what was written counts as another's change")
	}
	if e.Heard(slice("2")) {
		t.Error("a write is heard of twice")
	}
	e.Expect(slice("3"))
	if e.Heard(slice("4")) || e.Heard(slice("3")) {
		t.Error("a change after the write counts as the write, or leaves it remembered")
	}
}
