package kit

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"dormouse.dev/dormouse/api/v1alpha1"
)

func TestAnOwnerIsOfTheIndexsKindWhateverItsVersion(t *testing.T) {
	index := OwnerIndex{Key: "owner", Owner: schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "Fleet"}}
	for name, c := range map[string]struct {
		version, kind string
		controls      bool
		want          bool
	}{
		"its Fleet":               {"dormouse.dev/v1alpha1", "Fleet", true, true},
		"of another version":      {"dormouse.dev/v1", "Fleet", true, true},
		"of another group":        {"agones.dev/v1", "Fleet", true, false},
		"of another kind":         {"dormouse.dev/v1alpha1", "GameType", true, false},
		"one that doesn't own it": {"dormouse.dev/v1alpha1", "Fleet", false, false},
	} {
		o := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "games", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: c.version, Kind: c.kind, Name: "lobbies", UID: "u1", Controller: &c.controls},
		}}}
		owner, requests := index.Of(o), index.Request(t.Context(), o)
		if got := owner != nil && len(requests) == 1 && requests[0].String() == "games/lobbies"; got != c.want {
			t.Errorf("%s: %v, %v, want that it is found: %t", name, owner, requests, c.want)
		}
	}
}
