package fleet

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/places"
)

// on gives a Server a place.
func on(place int32) func(*server) { return func(s *server) { s.place = place } }

func TestPlacesGetServers(t *testing.T) {
	rolling := v1alpha1.FleetSpec{UpdateStrategy: v1alpha1.FleetUpdateRolling}
	for name, c := range map[string]struct {
		spec    v1alpha1.FleetSpec
		wanted  []int32
		taken   map[int32]string
		servers []server
		backoff backoff
		want    decided
		places  []int32
		stolen  string
	}{
		"the first Servers":         {wanted: []int32{0, 1, 2}, places: []int32{0, 1, 2}},
		"places of a GameType's":    {wanted: []int32{1, 4}, servers: []server{has("a", 0, on(4))}, places: []int32{1}},
		"a scale-down ends the top": {wanted: []int32{0}, servers: []server{has("a", 0, on(0)), has("b", 0, on(1)), has("c", 2, on(2))}, want: decided{Remove: []string{"b"}, Drain: []string{"c"}}},
		"a later scale-up takes back what drains": {
			wanted: []int32{0, 1}, servers: []server{has("a", 0, on(0)), has("b", 2, on(1), byFleet)}, want: decided{TakeBack: []string{"b"}},
		},
		"nothing has the place of a Server that is being deleted": {
			wanted: []int32{0}, servers: []server{has("a", 2, on(0), deleting)},
		},
		"nor of one that is broken and has players": {
			wanted: []int32{0}, servers: []server{has("a", 2, on(0), broken)}, want: decided{Drain: []string{"a"}, Broken: []string{"a"}},
		},
		"nor of one whose node is lost": {
			wanted: []int32{0, 1}, servers: []server{has("a", 0, on(0), lost), has("b", 0, on(1))},
		},
		"one whose node is lost goes when its place isn't wanted": {
			wanted: []int32{0}, servers: []server{has("a", 0, on(0)), has("b", 0, on(1), lost)}, want: decided{Remove: []string{"b"}},
		},
		"an Allocated one stays": {
			wanted: []int32{0}, servers: []server{has("a", 0, on(0)), has("b", 0, on(1), allocated)}, want: decided{Spared: 1},
		},
		"Servers from before there were places count": {
			wanted: []int32{0, 1}, servers: []server{has("old", 2, on(places.None))}, places: []int32{0},
		},
		"and go first": {
			wanted: []int32{0}, servers: []server{has("a", 0, on(0)), has("old", 2, on(places.None))}, want: decided{Drain: []string{"old"}},
		},
		"one whose node is lost stays": {
			wanted: []int32{0}, servers: []server{has("old", 2, on(places.None), lost)},
		},
		"somebody else's Server has the name": {
			wanted: []int32{0, 1}, taken: map[int32]string{0: "lobby-0"}, places: []int32{1}, stolen: "lobby-0", want: decided{Again: takenRetry},
		},
		"a replacement waits as elsewhere": {
			wanted: []int32{0, 1}, servers: []server{has("a", 0, on(0))}, backoff: backoff{debt: 1, notBefore: at(5)},
			want: decided{Held: 1, Again: 5 * time.Second},
		},
		"an update makes room at one place": {
			spec: rolling, wanted: []int32{0, 1, 2},
			servers: []server{has("a", 2, on(0), outdated), has("b", 1, on(1), outdated), has("c", 1, on(2), outdated)},
			want:    decided{Drain: []string{"c"}},
		},
		"and waits until it is up again": {
			spec: rolling, wanted: []int32{0, 1, 2},
			servers: []server{has("a", 2, on(0), outdated), has("b", 1, on(1), outdated), has("c", 1, on(2), outdated, byFleet)},
		},
		"what isn't up is replaced at once": {
			spec: rolling, wanted: []int32{0, 1},
			servers: []server{has("a", 2, on(0), outdated), has("b", 0, on(1), outdated, starting)},
			want:    decided{Remove: []string{"b"}},
		},
		"without Rolling outdated ones stay": {
			wanted: []int32{0}, servers: []server{has("a", 0, on(0), outdated)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.taken == nil {
				c.taken = map[int32]string{}
			}
			p := planPlaces(t0, &c.spec, &standing{wanted: c.wanted, taken: c.taken}, c.servers, c.backoff)
			c.want.Create = len(c.places)
			if diff := cmp.Diff(c.want, decide(p)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			if diff := cmp.Diff(c.places, p.places); diff != "" && len(c.places)+len(p.places) > 0 {
				t.Errorf("places: -want +got\n%s", diff)
			}
			if p.taken != c.stolen {
				t.Errorf("taken is %q, want %q", p.taken, c.stolen)
			}
		})
	}
}

// Ready says what is wrong with spec.places, and nothing is done to Servers by places that aren't known.
func TestPlacesThatCanNotBeUsedAreACondition(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).Build()}
	for name, c := range map[string]struct {
		places  string
		servers []server
		want    decided
		says    string
	}{
		"a range that ends before it begins": {
			places: "5-3", servers: []server{has("a", 0, on(0)), has("b", 2, on(1), outdated), has("c", 0, on(2), broken)},
			want: decided{Remove: []string{"c"}, Broken: []string{"c"}},
			says: `2 of 2 Servers are ready. spec.places must be numbers and ranges such as 0-2,5: "5-3" ends before it begins: correct it; until then no Servers are made or replaced.`,
		},
		"more than there may be": {
			places: strings.Repeat("0-99999,", 7499) + "0-99999", servers: []server{has("a", 0, on(0))},
			says: `1 of 2 Servers are ready. spec.places must be numbers and ranges such as 0-2,5: it has more than 10000 places: correct it; until then no Servers are made or replaced.`,
		},
		"too few": {
			places: "4", want: decided{Create: 1},
			says: "0 of 2 Servers are ready. spec.places has 1 for 2 Servers: name more, or lower replicas.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := lobbies()
			f.Spec.Places, f.Spec.UpdateStrategy = c.places, v1alpha1.FleetUpdateRolling
			at, err := r.observePlaces(t.Context(), f, c.servers)
			if err != nil {
				t.Fatal(err)
			}
			p := planPlaces(t0, &f.Spec, at, c.servers, backoff{})
			if diff := cmp.Diff(c.want, decide(p)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
			setStatus(t0, f, c.servers, p, backoff{})
			got := meta.FindStatusCondition(f.Status.Conditions, conditions.Ready)
			if got.Status != metav1.ConditionFalse || got.Reason != reasons.PlacesInvalid || got.Message != c.says {
				t.Errorf("Ready is %s %s: %s\nwant %s", got.Status, got.Reason, got.Message, c.says)
			}
		})
	}
}
