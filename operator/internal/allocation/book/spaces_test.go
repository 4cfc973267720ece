package book

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// Namespaces come and go, and the book has room for those alone that are there.
func TestANamespaceOfWhichNothingIsLeftIsForgotten(t *testing.T) {
	b := New(time.Now, Hooks{Decided: func(types.NamespacedName) {}, Held: func(types.NamespacedName) {}, Unused: func(types.NamespacedName) {}, Wakes: func() {}})
	b.Lead()
	s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{
		Namespace: "games", Name: "duel-x", UID: "x", ResourceVersion: "1", Labels: map[string]string{wellknown.GameTypeLabel: "duel", wellknown.FleetLabel: "duel-1"},
	}}
	service := func(name, kind string) *v1alpha1.ElasticService {
		es := &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: name, ResourceVersion: "1"}}
		es.Spec.ScaleTargetRef = v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Name: "duel"}
		if kind == "Deployment" {
			es.Spec.ScaleTargetRef.APIVersion = "apps/v1"
		}
		return es
	}
	game, web := service("duel", "GameType"), service("web", "Deployment")
	b.SetService(web)
	if n := len(b.spaces); n != 0 {
		t.Errorf("an ElasticService without Servers takes %d places", n)
	}
	b.SetServer(s)
	b.SetService(game)
	b.DeleteServer(s)
	b.DeleteService(web)
	if n := len(b.spaces); n != 1 {
		t.Errorf("with an ElasticService left the book has %d namespaces", n)
	}
	b.DeleteService(game)
	if n := len(b.spaces); n != 0 {
		t.Errorf("once all is gone the book has %d namespaces", n)
	}
	b.SetService(game)
	b.SetServer(s)
	b.DeleteService(game)
	b.DeleteServer(s)
	if n := len(b.spaces); n != 0 {
		t.Errorf("once all is gone, in another order, the book has %d namespaces", n)
	}
}
