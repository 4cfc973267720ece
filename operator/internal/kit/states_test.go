package kit

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestALaterObjectOfANameBeginsWithNoState(t *testing.T) {
	var dropped []types.UID
	s := States[int]{New: func() *int { return new(7) }, Dropped: func(uid types.UID, _ *int) { dropped = append(dropped, uid) }}
	key := types.NamespacedName{Namespace: "games", Name: "lobby"}
	*s.Of(key, "first") = 8
	if got := *s.Of(key, "first"); got != 8 {
		t.Errorf("the first one's state is %d, want 8 as it was left", got)
	}
	if got := *s.Of(key, "second"); got != 7 || !slices.Equal(dropped, []types.UID{"first"}) {
		t.Errorf("the second one's state is %d, and dropped are %v; want 7, and the first", got, dropped)
	}
	if keys := s.Keys(); !slices.Equal(keys, []types.NamespacedName{key}) {
		t.Errorf("states are of %v", keys)
	}
	s.Forget(key)
	s.Forget(key)
	if !slices.Equal(dropped, []types.UID{"first", "second"}) || len(s.Keys()) != 0 {
		t.Errorf("dropped are %v, and states are of %v", dropped, s.Keys())
	}
}
