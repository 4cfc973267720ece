package elasticservice

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// An object whose finalizer somebody removed by force is never released. What
// was known of it goes all the same, and its ports rest.
func TestAnObjectThatIsGoneLeavesNothingBehind(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	named := func(uid types.UID) *v1alpha1.ElasticService {
		return &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby", UID: uid}}
	}
	cases := map[string]func(*Reconciler){
		"it is not there any more":        func(r *Reconciler) { r.forget(types.NamespacedName{Namespace: "games", Name: "lobby"}) },
		"another of its name is in place": func(r *Reconciler) { r.memoryOf(named("second")) },
	}
	for name, goes := range cases {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{Now: func() time.Time { return now }}
			r.Init()
			owner := portOwner{"games", "first", "game", corev1.ProtocolTCP}
			port, err := r.ports.allocate(now, owner, func(int32) bool { return false })
			if err != nil {
				t.Fatal(err)
			}
			m := r.memoryOf(named("first"))
			m.keepPorts([]v1alpha1.PortStatus{{Name: "game", ResolverPort: port}})
			m.lastObstacle = "something"

			goes(r)
			if _, kept := r.ports.owners[port]; kept {
				t.Errorf("port %d is still taken", port)
			}
			if until := r.ports.resting[port]; !until.Equal(now.Add(portRest)) {
				t.Errorf("port %d rests until %s, want %s", port, until, now.Add(portRest))
			}
			if m := r.memoryOf(named("second")); m.lastObstacle != "" {
				t.Errorf("the next object is known for %q", m.lastObstacle)
			}
			if len(r.memories) != 1 {
				t.Errorf("%d objects are remembered, want 1", len(r.memories))
			}
		})
	}
}

func TestItIsRememberedSinceWhenAnEndpointHasBeenTerminating(t *testing.T) {
	terminating := map[string]role{"resolver-1": roleTerminating}
	m := &memory{}
	look := func(now float64, roles map[string]role) time.Time {
		o := inSlices(seen(1, upServer), lobby("", at(0)), roles)
		m.stepDown(at(now), &o)
		return o.resolvers[0].steppedDown
	}
	if since := look(0, map[string]role{"resolver-1": roleReady}); !since.IsZero() {
		t.Errorf("a ready endpoint is terminating since %s", since)
	}
	look(1, terminating)
	if since := look(5, terminating); !since.Equal(at(1)) {
		t.Errorf("terminating since %s, want %s", since, at(1))
	}
	look(6, nil)
	if since := look(7, terminating); !since.Equal(at(7)) {
		t.Errorf("terminating once more since %s, want %s", since, at(7))
	}
}

// A write that met another one is no error: it would be logged with a stack.
func TestAConflictIsNoError(t *testing.T) {
	conflict := fmt.Errorf("write the status: %w", apierrors.NewConflict(schema.GroupResource{Resource: "elasticservices"}, "lobby", errors.New("changed")))
	if result, err := afterConflict(reconcile.Result{}, conflict); err != nil || result.RequeueAfter <= 0 {
		t.Errorf("a conflict gives %v, again in %s; want no error, and soon", err, result.RequeueAfter)
	}
	other := errors.New("the API server says nothing")
	if _, err := afterConflict(reconcile.Result{}, other); !errors.Is(err, other) {
		t.Errorf("another error gives %v", err)
	}
}
