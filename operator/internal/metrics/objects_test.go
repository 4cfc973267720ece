package metrics

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"

	"dormouse.dev/dormouse/api/v1alpha1"
)

func TestObjectsAreThoseOfTheCache(t *testing.T) {
	o := &objects[*v1alpha1.Server]{all: map[types.UID]*v1alpha1.Server{}}
	server := func(uid types.UID, state v1alpha1.ServerState) *v1alpha1.Server {
		return &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid}, Status: v1alpha1.ServerStatus{State: state}}
	}
	want := func(why string, want ...string) {
		t.Helper()
		var got []string
		o.each(func(s *v1alpha1.Server) { got = append(got, string(s.UID)+" "+string(s.Status.State)) })
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", why, got, want)
		}
	}
	o.OnAdd(server("1", v1alpha1.ServerPending), true)
	o.OnAdd(server("2", v1alpha1.ServerReady), false)
	want("two are made", "1 Pending", "2 Ready")
	o.OnUpdate(server("1", v1alpha1.ServerPending), server("1", v1alpha1.ServerStarting))
	want("one starts", "1 Starting", "2 Ready")
	o.OnUpdate(server("1", v1alpha1.ServerStarting), server("3", v1alpha1.ServerPending))
	want("one was made again by the same name", "2 Ready", "3 Pending")
	o.OnDelete(server("2", v1alpha1.ServerReady))
	want("one is gone", "3 Pending")
	o.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "a", Obj: server("3", v1alpha1.ServerPending)})
	want("nobody saw how the other one went")
}
