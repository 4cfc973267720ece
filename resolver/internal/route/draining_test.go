package route

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

func serverOf(label string) *v1alpha1.Server {
	return &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby-0", Labels: map[string]string{label: "lobby"}}}
}

// A Server that drains keeps its players, so its address stays; it is its pod's
// readiness that comes too late.
func TestAServerThatDrainsTakesNobody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		kind, label string
	}{{"Fleet", wellknown.FleetLabel}, {"GameType", wellknown.GameTypeLabel}} {
		s := newSink()
		table := NewTable(s)
		lobby := newService("lobby", "u1", time.Hour).port("game", v1alpha1.ProtocolTCP, 10001)
		lobby.Spec.ScaleTargetRef = v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: c.kind, Name: "lobby"}
		table.SetService(lobby.ElasticService)
		// A Deployment of the same name has other pods.
		other := newService("web", "u2", time.Hour).port("game", v1alpha1.ProtocolTCP, 10002)
		other.Spec.ScaleTargetRef = v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: c.kind, Name: "lobby"}
		table.SetService(other.ElasticService)
		server := serverOf(c.label)
		table.SetServer(server)
		table.SetSlice(newSlice("s1", "lobby-private").port("game", corev1.ProtocolTCP, 25565).endpoint("10.0.0.1", true, false).pod().EndpointSlice)
		s.expect(t, "update u1", "update u2", "update u1")

		drains := func() bool { return s.routes["u1"].Ports[0].Backends[0].Terminating }
		if drains() {
			t.Errorf("%s: the Server counts as terminating before it drains", c.kind)
		}
		draining := server.DeepCopy()
		draining.Spec.Drain = true
		table.SetServer(draining)
		s.expect(t, "update u1")
		if !drains() {
			t.Errorf("%s: a Server that drains may get players", c.kind)
		}
		table.SetServer(server)
		s.expect(t, "update u1")
		if drains() {
			t.Errorf("%s: a Server that was taken back gets no players", c.kind)
		}
		deleted := server.DeepCopy()
		deleted.DeletionTimestamp = &metav1.Time{Time: epoch}
		table.SetServer(deleted)
		s.expect(t, "update u1")
		if !drains() {
			t.Errorf("%s: a Server that is being deleted may get players", c.kind)
		}
		table.DeleteServer(deleted)
		table.DeleteService("games", "lobby")
		table.DeleteService("games", "web")
		if len(table.draining)+len(table.targets) != 0 {
			t.Errorf("%s: something is left of what is gone", c.kind)
		}
	}
}

// Such a pod may be ended at any moment, and its endpoint doesn't tell.
func TestAPodFromBeforeTheSleepTakesNobody(t *testing.T) {
	t.Parallel()
	s := newSink()
	table := NewTable(s)
	lobby := newService("lobby", "u1", time.Hour).port("game", v1alpha1.ProtocolTCP, 10001)
	table.SetSlice(newSlice("a", "lobby-private").port("game", corev1.ProtocolTCP, 25565).endpoint("10.0.0.1", true, false).pod().EndpointSlice)
	next := newSlice("b", "lobby-private").port("game", corev1.ProtocolTCP, 25565).endpoint("10.0.0.2", true, false).pod().EndpointSlice
	next.Endpoints[0].TargetRef.UID = "pod-b"
	table.SetSlice(next)
	slept, woken := metav1.NewMicroTime(epoch), metav1.NewMicroTime(epoch.Add(time.Minute))
	lobby.Status.LastWakeTime = &woken
	lobby.Status.LastSleepTime, lobby.Status.PodsBeforeSleep = &slept, []types.UID{"pod-a", "pod-gone"}
	table.SetService(lobby.ElasticService)
	s.expect(t, "update u1")
	terminating := func() []bool {
		b := s.routes["u1"].Ports[0].Backends
		return []bool{b[0].Terminating, b[1].Terminating}
	}
	if got := terminating(); !slices.Equal(got, []bool{true, false}) {
		t.Errorf("terminating: %v, want the one from before the sleep alone", got)
	}
	if got := s.routes["u1"].LastSleep; !got.Equal(epoch) {
		t.Errorf("the last sleep is %v, want %v", got, epoch)
	}
	if got := s.routes["u1"].LastWakeTime; !got.Equal(woken.Time) {
		t.Errorf("the last wake is %v, want %v", got, woken)
	}
	stays := lobby.DeepCopy()
	stays.Status.PodsBeforeSleep = nil
	table.SetService(stays)
	s.expect(t, "update u1")
	if got := terminating(); !slices.Equal(got, []bool{false, false}) {
		t.Errorf("terminating: %v, want none once they stay", got)
	}
}

func TestAStrippedServerStillDrains(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*v1alpha1.Server){
		func(s *v1alpha1.Server) { s.Spec.Drain = true },
		func(s *v1alpha1.Server) { s.DeletionTimestamp = &metav1.Time{Time: epoch} },
	} {
		s := serverOf(wellknown.FleetLabel)
		s.Spec.Template.Spec.Containers = []corev1.Container{{Name: "game"}}
		change(s)
		stripped, err := stripServer(s)
		if err != nil {
			t.Fatal(err)
		}
		slim := stripped.(*v1alpha1.Server)
		table := NewTable(newSink())
		if table.SetServer(slim); len(table.draining) != 1 {
			t.Error("what says that the Server drains was stripped")
		}
		if targetsOf(slim)[0] != (Target{"games", "Fleet", "lobby"}) || len(slim.Spec.Template.Spec.Containers) > 0 {
			t.Errorf("%+v is left, want whose the Server is and nothing more", slim)
		}
	}
}

// A Server that is a target itself gets nobody once it is told to stop.
func TestAServerThatIsToldToStopDrains(t *testing.T) {
	s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby"}}
	stopped := s.DeepCopy()
	stopped.Spec.Replicas = new(int32(0))
	kept, err := stripServer(stopped)
	if err != nil {
		t.Fatal(err)
	}
	table := NewTable(nil)
	table.SetServer(s)
	if table.draining[types.NamespacedName{Namespace: "games", Name: "lobby"}] {
		t.Error("a Server that runs drains")
	}
	table.SetServer(kept.(*v1alpha1.Server))
	if !table.draining[types.NamespacedName{Namespace: "games", Name: "lobby"}] {
		t.Error("a Server that is told to stop takes players")
	}
	if !slices.Contains(targetsOf(s), Target{"games", "Server", "lobby"}) {
		t.Error("a Server isn't its own target")
	}
}
