package elasticservice

import (
	"testing"
	"time"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/elasticservice/status"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/pending"
	"dormouse.dev/dormouse/operator/internal/resolverports"
	"dormouse.dev/dormouse/operator/internal/spec"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/test/seen"
)

// An object whose finalizer somebody removed by force is never released. What
// was known of it goes all the same, and its ports rest.
func TestAnObjectThatIsGoneLeavesNothingBehind(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	named := func(uid types.UID) *v1alpha1.ElasticService {
		return &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby", UID: uid}}
	}
	cases := map[string]func(*Reconciler){
		"it is not there any more":        func(r *Reconciler) { r.states.Forget(types.NamespacedName{Namespace: "games", Name: "lobby"}) },
		"another of its name is in place": func(r *Reconciler) { r.stateOf(named("second")) },
	}
	for name, goes := range cases {
		t.Run(name, func(t *testing.T) {
			r := &Reconciler{Now: func() time.Time { return now }}
			r.Init()
			owner := resolverports.Owner{Namespace: "games", UID: "first", Name: "game", Protocol: corev1.ProtocolTCP}
			port, err := r.Ports.Allocate(now, owner, func(int32) bool { return false })
			if err != nil {
				t.Fatal(err)
			}
			m := r.stateOf(named("first"))
			m.ports = []v1alpha1.PortStatus{{Name: "game", ResolverPort: port}}
			m.lastObstacle = "something"

			goes(r)
			if r.Ports.Taken(port) {
				t.Errorf("port %d is still taken", port)
			}
			if until := r.Ports.RestsUntil(port); !until.Equal(now.Add(resolverports.Rest)) {
				t.Errorf("port %d rests until %s, want %s", port, until, now.Add(resolverports.Rest))
			}
			if m := r.stateOf(named("second")); m.lastObstacle != "" {
				t.Errorf("the next object is known for %q", m.lastObstacle)
			}
			if len(r.states.Keys()) != 1 {
				t.Errorf("%d objects are remembered, want 1", len(r.states.Keys()))
			}
		})
	}
}

func TestItIsRememberedSinceWhenAnEndpointHasBeenTerminating(t *testing.T) {
	terminating := map[string]endpoints.Role{"resolver-1": endpoints.RoleTerminating}
	m := &state{}
	look := func(now float64, roles map[string]endpoints.Role) time.Time {
		o := seen.InSlices(seen.Of(1, seen.UpServer), fixture.Lobby("", fixture.At(0)), roles)
		o.Resolvers[0].Role = endpoints.RoleNone // it is found in the slices
		m.steppedDown.Follow(fixture.At(now), o.Slices, o.Resolvers)
		if got := o.Resolvers[0].Role; got != roles["resolver-1"] {
			t.Errorf("the resolver's role is %d, want %d", got, roles["resolver-1"])
		}
		return o.Resolvers[0].SteppedDown
	}
	if since := look(0, map[string]endpoints.Role{"resolver-1": endpoints.RoleReady}); !since.IsZero() {
		t.Errorf("a ready endpoint is terminating since %s", since)
	}
	look(1, terminating)
	if since := look(5, terminating); !since.Equal(fixture.At(1)) {
		t.Errorf("terminating since %s, want %s", since, fixture.At(1))
	}
	look(6, nil)
	if since := look(7, terminating); !since.Equal(fixture.At(7)) {
		t.Errorf("terminating once more since %s, want %s", since, fixture.At(7))
	}
}

// follows is a pass over an awake service without a selector: it writes the status, and gives the phase.
func (m *state) follows(seconds float64, es *v1alpha1.ElasticService, changes ...func(*planner.Observed)) v1alpha1.Phase {
	now := fixture.At(seconds)
	o := seen.With(seen.Of(1, seen.UpServer), changes...)
	o.Is, o.Service.Spec.Selector = spec.Of(es), nil
	m.follow(now, es, &o)
	p := planner.Make(now, es, o, planner.Findings{})
	status.Set(now, es, o, planner.Findings{}, p)
	return p.Phase
}

// sleepsAt checks that a service falls asleep at a time, and not before.
func (m *state) sleepsAt(t *testing.T, seconds float64, es *v1alpha1.ElasticService) {
	t.Helper()
	if phase := m.follows(seconds-1, es); phase != v1alpha1.PhaseAwake {
		t.Errorf("a second before it is %s", phase)
	}
	if phase := m.follows(seconds, es); phase != v1alpha1.PhaseFallingAsleep {
		t.Errorf("then it is %s", phase)
	}
}

// Those who play when Direct becomes Never went past the resolvers, which have no client.
func TestWhoCameBeforeHandoffNeverIsGivenSleepAfter(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// idle is what tells before that a service is idle.
		idle *v1alpha1.Idle
		// anew is set where another process leads after the change.
		anew bool
	}{
		"nothing told who plays": {},
		"a trigger did":          {idle: fixture.Lobby("", fixture.T0).Spec.Idle},
		"another process leads":  {anew: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, es := &state{}, fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-7200))
			es.Spec.Idle = c.idle
			if phase := m.follows(-30, es, func(o *planner.Observed) { o.Triggers.BelowSince = time.Time{} }); phase != v1alpha1.PhaseAwake {
				t.Fatalf("while it is used it is %s", phase)
			}
			fixture.Never(es)
			if phase := m.follows(0, es); phase != v1alpha1.PhaseAwake {
				t.Errorf("as its handoff changes it is %s", phase)
			}
			if c.anew {
				m = &state{}
			}
			m.sleepsAt(t, 60, es)
		})
	}
}

// What a resolver saw of clients isn't forgotten with it: they come back by another one.
func TestTheClientsOfAResolverThatEndedWereThere(t *testing.T) {
	t.Parallel()
	idle := func(o *planner.Observed) { o.Resolvers[0].LastActive = fixture.At(-7200) }
	for name, c := range map[string]struct {
		has func(*endpoints.Resolver)
		// anew is set where another process leads after its end.
		anew bool
		// want is when it falls asleep.
		want float64
	}{
		"somebody played":                        {has: func(r *endpoints.Resolver) { r.Sessions = 1 }, want: 57},
		"somebody waited":                        {has: func(r *endpoints.Resolver) { r.Queued = 1 }, want: 57},
		"somebody had left":                      {has: func(r *endpoints.Resolver) { r.LastActive = fixture.At(-20) }, want: 40},
		"somebody played, and another one leads": {has: func(r *endpoints.Resolver) { r.Sessions = 1 }, anew: true, want: 60},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, es := &state{}, fixture.Never(fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-7200)))
			m.follows(-7200, es, idle)
			if phase := m.follows(-3, es, idle, func(o *planner.Observed) {
				ends := seen.Standing("resolver-2")
				c.has(&ends)
				o.Resolvers = append(o.Resolvers, ends)
			}); phase != v1alpha1.PhaseAwake {
				t.Fatalf("before its end the service is %s", phase)
			}
			if c.anew {
				m = &state{}
			}
			if phase := m.follows(0, es, idle); phase != v1alpha1.PhaseAwake {
				t.Errorf("at its end the service is %s", phase)
			}
			m.sleepsAt(t, c.want, es)
		})
	}
}

// A server that crashes soon after each of its starts is never up for long.
func TestAServerThatCrashesAgainAndAgainDoesntLast(t *testing.T) {
	var m state
	es := fixture.Lobby(v1alpha1.PhaseWaking, fixture.At(0))
	up := func(seconds float64, is, wanted bool) {
		o := seen.Of(0)
		if wanted {
			o = seen.Of(1)
		}
		if is {
			o.Up = 1
		}
		m.follow(fixture.At(seconds), es, &o)
	}
	for _, s := range []float64{0, 20, 60} {
		up(s, false, true)
		up(s+2, true, true)
		up(s+10, true, true)
	}
	if !m.noneLastingSince.Equal(fixture.At(0)) || !m.noneUpSince.IsZero() {
		t.Errorf("none lasts since %s, none is up since %s; want %s and none", m.noneLastingSince, m.noneUpSince, fixture.At(0))
	}
	if up(122, true, true); !m.noneLastingSince.IsZero() {
		t.Error("one that has been up for a minute doesn't last")
	}
	// It has its time from when it is wanted: nobody may have made a wake call.
	up(200, false, false)
	if up(900, false, true); !m.noneLastingSince.Equal(fixture.At(900)) {
		t.Errorf("none lasts since %s, want %s, when one was wanted", m.noneLastingSince, fixture.At(900))
	}
}

// There may be ten thousand. What few have is by a pointer.
func TestAStateIsSmall(t *testing.T) {
	const most = 896 // bytes, one of Go's sizes of memory
	if size := unsafe.Sizeof(state{}); size > most {
		t.Errorf("it takes %d bytes, want %d at most", size, most)
	}
}

// A pass whose cache lags goes by the controller's own last write: by the older object it would be refused.
func TestAPassGoesByTheLastWriteUntilTheCacheShowsIt(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	version := func(v string) *v1alpha1.ElasticService {
		return &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{ResourceVersion: v}}
	}
	var m state
	if got := m.newest(now, version("7")).ResourceVersion; got != "7" {
		t.Errorf("before any write it goes by %s, want 7", got)
	}
	for _, step := range []struct {
		about         string
		write, cached string
		after         time.Duration
		want          string
	}{
		{about: "the cache lags", write: "9", cached: "7", want: "9"},
		{about: "it shows something before the write", cached: "8", want: "9"},
		{about: "it shows the write", cached: "9", want: "9"},
		{about: "it lags behind the next write", write: "100", cached: "9", after: time.Hour, want: "100"},
		{about: "it shows somebody else's later write", cached: "101", after: time.Hour, want: "101"},
		{about: "it lags again", write: "200", cached: "101", after: 2 * time.Hour, want: "200"},
		{about: "it has never shown that, as after a restore of the API server's data", cached: "150", after: 2*time.Hour + pending.MaxLag, want: "150"},
		{about: "the next write there", write: "160", cached: "150", after: 3 * time.Hour, want: "160"},
	} {
		if step.write != "" {
			m.wrote(version(step.write))
		}
		if got := m.newest(now.Add(step.after), version(step.cached)).ResourceVersion; got != step.want {
			t.Errorf("%s: it goes by %s, want %s", step.about, got, step.want)
		}
	}
}
