package route

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// world is a sleeping GameType's route, with a pod that has no address yet.
type world struct {
	t     *testing.T
	sink  *sink
	table *Table
	now   time.Time
	lobby *v1alpha1.ElasticService
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, sink: newSink()}
	w.table = NewTable(w.sink)
	w.now = epoch
	w.table.now = func() time.Time { return w.now }
	lobby := newService("lobby", "u1", time.Hour).port("game", v1alpha1.ProtocolTCP, 10001)
	lobby.Spec.ScaleTargetRef = v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GameType", Name: "lobby"}
	w.lobby = lobby.ElasticService
	w.table.SetService(w.lobby)
	return w
}

// endpoint is what kubelet says of the Server's pod.
func (w *world) endpoint(serving bool) {
	slice := newSlice("s1", "lobby-private").port("game", corev1.ProtocolTCP, 25565).endpoint("10.0.0.1", serving, false).pod().EndpointSlice
	slice.Endpoints[0].TargetRef = &corev1.ObjectReference{Name: "lobby-0", UID: "pod-1"}
	slice.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: &serving, Serving: &serving}
	w.table.SetSlice(slice)
}

// game is what the game says, as it comes through the watch.
func (w *world) game(change func(*v1alpha1.Server)) {
	w.t.Helper()
	s := serverOf(wellknown.GameTypeLabel)
	s.Status.Game = &v1alpha1.GameStatus{State: v1alpha1.GameReady, PodUID: "pod-1", Reported: true, Since: &metav1.Time{Time: epoch}}
	change(s)
	stripped, err := stripServer(s)
	if err != nil {
		w.t.Fatal(err)
	}
	w.table.SetServer(stripped.(*v1alpha1.Server))
}

func (w *world) wantServing(when string, want bool) {
	w.t.Helper()
	if got := w.sink.routes["u1"].Ports[0].Backends[0].Serving; got != want {
		w.t.Errorf("%s its pod counts as serving: %t, want %t", when, got, want)
	}
}

func nothing(*v1alpha1.Server) {}

// A game that says that it takes players gets them before kubelet's next probe, and from that on
// kubelet's word counts.
func TestAGameThatTakesPlayersGetsThemAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.endpoint(false)
	w.wantServing("before the game has said anything", false)
	w.game(nothing)
	w.wantServing("once the game takes players", true)
	w.endpoint(false)
	w.wantServing("while kubelet hasn't looked", true)
	w.endpoint(true)
	w.wantServing("once kubelet has found it out", true)
	w.endpoint(false) // its node is lost
	w.game(func(s *v1alpha1.Server) { s.Status.Players = &v1alpha1.PlayersStatus{Current: 1} })
	w.wantServing("when kubelet says no after that", false)
	w.table.DeleteServer(serverOf(wellknown.GameTypeLabel))
	if len(w.table.early) != 0 {
		t.Error("something is left of a Server that is gone")
	}
}

// The address may come after the game's word.
func TestAnAddressThatComesLaterIsGivenAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.game(nothing)
	w.endpoint(false)
	w.wantServing("with its address", true)
}

func TestWhoseWordDoesNotCount(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1alpha1.Server){
		"a game that starts":              func(s *v1alpha1.Server) { s.Status.Game.State = v1alpha1.GameStarting },
		"a broken one":                    func(s *v1alpha1.Server) { s.Status.Game.State = v1alpha1.GameUnhealthy },
		"one that says nothing of itself": func(s *v1alpha1.Server) { s.Status.Game.Reported = false },
		"one of the Pod before":           func(s *v1alpha1.Server) { s.Status.Game.PodUID = "pod-0" },
		"one without a report":            func(s *v1alpha1.Server) { s.Status.Game = nil },
		"a word that is old":              func(s *v1alpha1.Server) { s.Status.Game.Since.Time = epoch.Add(-earlyFor - time.Second) },
		"a word without a time":           func(s *v1alpha1.Server) { s.Status.Game.Since = nil },
		"another GameType's":              func(s *v1alpha1.Server) { s.Name, s.Labels[wellknown.GameTypeLabel] = "arena-0", "arena" },
	} {
		w := newWorld(t)
		w.endpoint(false)
		w.game(change)
		w.wantServing("by the word of "+name, false)
	}
	// A game that was ready and isn't any more.
	w := newWorld(t)
	w.endpoint(false)
	w.game(nothing)
	w.game(func(s *v1alpha1.Server) { s.Status.Game.State = v1alpha1.GameUnhealthy })
	w.wantServing("once it is broken", false)
	// One that kubelet never finds ready, on a node that is lost perhaps.
	w = newWorld(t)
	w.endpoint(false)
	w.game(nothing)
	w.now = epoch.Add(earlyFor)
	w.table.SetService(w.lobby) // whatever changes
	w.wantServing("once its word is old", false)
	// A resolver that starts beside one that runs.
	w = newWorld(t)
	w.endpoint(true)
	w.game(nothing)
	w.endpoint(false)
	w.wantServing("when a resolver has begun later", false)
}
