package elasticservice

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/operator/internal/trigger"
)

var t0 = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// at is a time some seconds after t0.
func at(seconds float64) time.Time { return t0.Add(time.Duration(seconds * float64(time.Second))) }

func micro(t time.Time) *metav1.MicroTime { return &metav1.MicroTime{Time: t} }

// lobby is an ElasticService with an http trigger that sleeps after a minute.
func lobby(phase v1alpha1.Phase, since time.Time) *v1alpha1.ElasticService {
	return &v1alpha1.ElasticService{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby", UID: "es-1"},
		Spec: v1alpha1.ElasticServiceSpec{
			Service:        "lobby",
			ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "lobby"},
			SleepAfter:     &metav1.Duration{Duration: time.Minute},
			Handoff:        v1alpha1.HandoffDirect,
			Idle:           &v1alpha1.Idle{Triggers: []v1alpha1.Trigger{{Type: v1alpha1.TriggerHTTP, HTTP: &v1alpha1.HTTPTrigger{Port: 8080, Threshold: 1}}}},
		},
		Status: v1alpha1.ElasticServiceStatus{
			Phase: phase, PhaseSince: micro(since),
			Ports: []v1alpha1.PortStatus{{Name: "game", Protocol: v1alpha1.ProtocolTCP, ResolverPort: 10001}},
		},
	}
}

func never(es *v1alpha1.ElasticService) *v1alpha1.ElasticService {
	es.Spec.Handoff, es.Spec.Idle = v1alpha1.HandoffNever, nil
	return es
}

func deleted(es *v1alpha1.ElasticService, when time.Time) *v1alpha1.ElasticService {
	es.DeletionTimestamp = &metav1.Time{Time: when}
	return es
}

// standing is a resolver that listens on lobby's port.
func standing(name string) resolver {
	return resolver{
		uid: name, podName: name, namespace: "dormouse-system", addresses: []string{"10.244.1." + name[len(name)-1:]},
		ready: true, reachable: true, listening: map[int32]bool{10001: true}, started: at(-3600),
	}
}

func service() *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby"},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.7", Selector: map[string]string{"app": "lobby"}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Name: "game", Protocol: corev1.ProtocolTCP, Port: 7777}},
		},
	}
}

// seen is what is observed of a target with replicas, and servers.
func seen(replicas int32, servers ...server) observed {
	return observed{
		service:   service(),
		scale:     scaleView{replicas: replicas},
		servers:   servers,
		resolvers: []resolver{standing("resolver-1")},
		triggers:  trigger.Reading{At: at(0), BelowSince: at(-3600)},
	}
}

var upServer = server{uid: "pod-1", address: "10.244.2.9", serving: true}

func with(o observed, changes ...func(*observed)) observed {
	for _, change := range changes {
		change(&o)
	}
	return o
}

// inSlices gives resolvers the roles that they have in the Service's slices.
func inSlices(o observed, es *v1alpha1.ElasticService, roles map[string]role) observed {
	for _, s := range desiredSlices(es, o, plan{roles: roles}) {
		o.slices = append(o.slices, *s)
	}
	return o
}

// unprobed makes a Service without a selector of it, whose pods have no readiness probe.
func unprobed(o *observed) {
	o.service.Spec.Selector = nil
	o.scale.readiness = v1alpha1.PodReadinessConnect
}

func TestPlan(t *testing.T) {
	ready := map[string]role{"resolver-1": roleReady}
	terminating := map[string]role{"resolver-1": roleTerminating}
	stamp := func(t time.Time) *time.Time { return &t }
	type want struct {
		Phase   v1alpha1.Phase
		Mode    v1alpha1.Mode
		Roles   map[string]role
		Commit  bool
		Raise   bool
		Release bool
		Requeue time.Duration
	}
	for name, c := range map[string]struct {
		es   *v1alpha1.ElasticService
		o    observed
		want want
	}{
		"a target at zero sleeps, whoever scaled it, and the resolver stands in": {
			es:   lobby(v1alpha1.PhaseAwake, at(-600)),
			o:    seen(0),
			want: want{Phase: v1alpha1.PhaseAsleep, Mode: v1alpha1.ModeProxy, Roles: ready},
		},
		"a resolver that doesn't listen yet gets no endpoint and is looked at again soon": {
			es:   lobby("", at(0)),
			o:    with(seen(0), func(o *observed) { o.resolvers[0].listening = nil }),
			want: want{Phase: v1alpha1.PhaseAsleep, Mode: v1alpha1.ModeProxy, Roles: map[string]role{}, Requeue: 200 * time.Millisecond},
		},
		"a target that can't be scaled and has no server gets the resolver, who refuses": {
			es:   lobby("", at(0)),
			o:    with(seen(0), func(o *observed) { o.scale = scaleView{err: target.ErrNotScalable} }),
			want: want{Mode: v1alpha1.ModeProxy, Roles: ready},
		},
		"a Service whose target can't be scaled is left to its servers": {
			es:   lobby("", at(0)),
			o:    with(seen(0, upServer), func(o *observed) { o.scale = scaleView{err: target.ErrNotScalable} }),
			want: want{Mode: v1alpha1.ModeServe, Roles: map[string]role{}},
		},
		"a server without a probe that takes none of those who wait isn't up": {
			es:   lobby(v1alpha1.PhaseWaking, at(-1)),
			o:    with(seen(1, upServer), unprobed, func(o *observed) { o.resolvers[0].queued = 1; o.upSince = at(-2) }),
			want: want{Phase: v1alpha1.PhaseWaking, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: 500 * time.Millisecond},
		},
		"it is up once one has got through": {
			es: lobby(v1alpha1.PhaseWaking, at(-1)),
			o: with(seen(1, upServer), unprobed, func(o *observed) {
				o.resolvers[0].queued, o.resolvers[0].sessions, o.upSince = 1, 1, at(-2)
			}),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]role{}, Requeue: time.Second},
		},
		"it is up by Kubernetes' word where nobody waits": {
			es:   lobby(v1alpha1.PhaseWaking, at(-1)),
			o:    with(seen(1, upServer), unprobed, func(o *observed) { o.upSince = at(-2) }),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]role{}, Requeue: time.Minute},
		},
		"it is up by Kubernetes' word after half a minute": {
			es:   lobby(v1alpha1.PhaseWaking, at(-1)),
			o:    with(seen(1, upServer), unprobed, func(o *observed) { o.resolvers[0].queued = 1; o.upSince = at(-30) }),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]role{}, Requeue: time.Second},
		},
		"it stays up whoever waits": {
			es:   lobby(v1alpha1.PhaseAwake, at(-1)),
			o:    with(seen(1, upServer), unprobed, func(o *observed) { o.resolvers[0].queued = 1; o.upSince = at(-2) }),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]role{}, Requeue: time.Second},
		},
		"the clients of a wake are looked for soon": {
			es:   lobby(v1alpha1.PhaseWaking, at(-1)),
			o:    seen(1),
			want: want{Phase: v1alpha1.PhaseWaking, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: wakePeriod},
		},
		"a wake that nobody waits for any more is left alone": {
			es:   lobby(v1alpha1.PhaseWaking, at(-10)),
			o:    seen(1),
			want: want{Phase: v1alpha1.PhaseWaking, Mode: v1alpha1.ModeProxy, Roles: ready},
		},
		"replicas without a server are waking": {
			es:   lobby(v1alpha1.PhaseAsleep, at(-600)),
			o:    seen(1, server{uid: "pod-1", address: "10.244.2.9"}),
			want: want{Phase: v1alpha1.PhaseWaking, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: wakePeriod},
		},
		"a server that is up takes over, and the resolver's endpoint lingers": {
			es:   lobby(v1alpha1.PhaseWaking, at(-1)),
			o:    inSlices(seen(1, upServer), lobby("", at(0)), ready),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: terminating, Requeue: linger},
		},
		"a resolver's endpoint stays while it carries clients": {
			es: lobby(v1alpha1.PhaseAwake, at(-600)),
			o: inSlices(with(seen(1, upServer), func(o *observed) { o.resolvers[0].sessions = 3 }),
				lobby("", at(0)), terminating),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: terminating, Requeue: 5 * time.Second},
		},
		"a resolver's endpoint goes ten seconds after its last client": {
			es: lobby(v1alpha1.PhaseAwake, at(-30)),
			o: inSlices(with(seen(1, upServer), func(o *observed) {
				o.resolvers[0].lastActive, o.resolvers[0].steppedDown = at(-10), at(-30)
			}), lobby("", at(0)), terminating),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]role{}, Requeue: 50 * time.Second},
		},
		"and ten seconds after it stopped getting new ones, which nodes learn of later": {
			es: lobby(v1alpha1.PhaseAwake, at(-30)),
			o: inSlices(with(seen(1, upServer), func(o *observed) { o.resolvers[0].steppedDown = at(-9) }),
				lobby("", at(0)), terminating),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: terminating, Requeue: time.Second},
		},
		"a resolver pod that is going keeps its endpoint, though nobody is known to be there": {
			es: lobby(v1alpha1.PhaseAsleep, at(-600)),
			o: inSlices(with(seen(0), func(o *observed) {
				o.resolvers[0].ready = false
				o.resolvers = append(o.resolvers, standing("resolver-2"))
			}), lobby("", at(0)), ready),
			want: want{
				Phase: v1alpha1.PhaseAsleep, Mode: v1alpha1.ModeProxy,
				Roles: map[string]role{"resolver-1": roleTerminating, "resolver-2": roleReady}, Requeue: linger,
			},
		},
		"a resolver that fell silent keeps its endpoint, for its clients' sake": {
			es: lobby(v1alpha1.PhaseAwake, at(-600)),
			o: inSlices(with(seen(1, upServer), func(o *observed) {
				o.resolvers[0].reachable, o.resolvers[0].silentSince, o.resolvers[0].err = false, at(-299), errors.New("timeout")
			}), lobby("", at(0)), terminating),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: terminating, Requeue: 5 * time.Second},
		},
		"a resolver that was silent for five minutes carries nobody": {
			es: lobby(v1alpha1.PhaseAwake, at(-30)),
			o: inSlices(with(seen(1, upServer), func(o *observed) {
				o.resolvers[0].reachable, o.resolvers[0].silentSince, o.resolvers[0].err = false, at(-301), errors.New("timeout")
			}), lobby("", at(0)), terminating),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]role{}, Requeue: 5 * time.Second},
		},
		"a resolver pod that is going gets no new clients and keeps those it has": {
			es: lobby(v1alpha1.PhaseAsleep, at(-600)),
			o: inSlices(with(seen(0), func(o *observed) {
				o.resolvers[0].ready, o.resolvers[0].queued = false, 1
				o.resolvers = append(o.resolvers, standing("resolver-2"))
			}), lobby("", at(0)), ready),
			want: want{
				Phase: v1alpha1.PhaseAsleep, Mode: v1alpha1.ModeProxy,
				Roles: map[string]role{"resolver-1": roleTerminating, "resolver-2": roleReady}, Requeue: maxQueuedPeriod,
			},
		},
		"a blip of readiness changes nothing for five seconds": {
			es: lobby(v1alpha1.PhaseAwake, at(-600)),
			o: with(seen(1, server{uid: "pod-1", address: "10.244.2.9"}), func(o *observed) {
				o.noneUpSince = at(-2)
			}),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]role{}, Requeue: 3 * time.Second},
		},
		"the resolver steps in when no server was up for five seconds": {
			es: lobby(v1alpha1.PhaseAwake, at(-600)),
			o: with(seen(1, server{uid: "pod-1", address: "10.244.2.9"}), func(o *observed) {
				o.noneUpSince = at(-5)
			}),
			want: want{Phase: v1alpha1.PhaseWaking, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: wakePeriod},
		},
		"the resolver steps in at once when the only server is going": {
			es: lobby(v1alpha1.PhaseAwake, at(-600)),
			o: with(seen(1, server{uid: "pod-1", address: "10.244.2.9", serving: true, terminating: true}), func(o *observed) {
				o.noneUpSince = at(0)
			}),
			want: want{Phase: v1alpha1.PhaseWaking, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: wakePeriod},
		},
		"the resolver steps in at once when all servers drain": {
			es: lobby(v1alpha1.PhaseAwake, at(-600)),
			o: with(seen(1, server{uid: "pod-1", address: "10.244.2.9", serving: true, draining: true}), func(o *observed) {
				o.noneUpSince = at(0)
			}),
			want: want{Phase: v1alpha1.PhaseWaking, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: wakePeriod},
		},
		"an idle service falls asleep with the resolver ready first": {
			es:   lobby(v1alpha1.PhaseAwake, at(-60)),
			o:    seen(1, upServer),
			want: want{Phase: v1alpha1.PhaseFallingAsleep, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: settle},
		},
		"no service falls asleep without a resolver that listens": {
			es:   lobby(v1alpha1.PhaseAwake, at(-60)),
			o:    with(seen(1, upServer), func(o *observed) { o.resolvers[0].listening = nil }),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]role{}, Requeue: time.Second},
		},
		"a sleep is not committed before kube-proxy had its time": {
			es: lobby(v1alpha1.PhaseFallingAsleep, at(-2)),
			o: with(seen(1, upServer), func(o *observed) {
				o.sleepBegun, o.resolvers[0].phase = stamp(time.Time{}), string(v1alpha1.PhaseFallingAsleep)
			}),
			want: want{Phase: v1alpha1.PhaseFallingAsleep, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: 3 * time.Second},
		},
		"a sleep is not committed before each resolver knows of it": {
			es: lobby(v1alpha1.PhaseFallingAsleep, at(-6)),
			o: with(seen(1, upServer), func(o *observed) {
				o.sleepBegun, o.resolvers[0].phase = stamp(time.Time{}), string(v1alpha1.PhaseAwake)
			}),
			want: want{Phase: v1alpha1.PhaseFallingAsleep, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: 100 * time.Millisecond},
		},
		"a sleep is not committed before the triggers were asked once more": {
			es: lobby(v1alpha1.PhaseFallingAsleep, at(-6)),
			o: with(seen(1, upServer), func(o *observed) {
				o.sleepBegun, o.resolvers[0].phase = stamp(time.Time{}), string(v1alpha1.PhaseFallingAsleep)
				o.triggers.At = at(-1.5)
			}),
			want: want{Phase: v1alpha1.PhaseFallingAsleep, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: 200 * time.Millisecond},
		},
		"a sleep is not committed while a resolver that is going may still take clients": {
			es: lobby(v1alpha1.PhaseFallingAsleep, at(-6)),
			o: inSlices(with(seen(1, upServer), func(o *observed) {
				o.sleepBegun = stamp(time.Time{})
				o.resolvers[0].ready, o.resolvers[0].phase, o.resolvers[0].lastActive = false, string(v1alpha1.PhaseAwake), at(-60)
				o.resolvers = append(o.resolvers, standing("resolver-2"))
				o.resolvers[1].phase = string(v1alpha1.PhaseFallingAsleep)
			}), lobby("", at(0)), terminating),
			want: want{
				Phase: v1alpha1.PhaseFallingAsleep, Mode: v1alpha1.ModeProxy,
				Roles:   map[string]role{"resolver-1": roleTerminating, "resolver-2": roleReady},
				Requeue: 100 * time.Millisecond,
			},
		},
		"a sleep that nobody disturbed is committed": {
			es: lobby(v1alpha1.PhaseFallingAsleep, at(-6)),
			o: with(seen(1, upServer), func(o *observed) {
				o.sleepBegun, o.resolvers[0].phase = stamp(time.Time{}), string(v1alpha1.PhaseFallingAsleep)
			}),
			want: want{Phase: v1alpha1.PhaseFallingAsleep, Mode: v1alpha1.ModeProxy, Roles: ready, Commit: true},
		},
		"a wake cancels a sleep, even one stamped by a clock that is behind": {
			es: func() *v1alpha1.ElasticService {
				es := lobby(v1alpha1.PhaseFallingAsleep, at(-6))
				es.Status.LastWakeTime = micro(at(-100))
				return es
			}(),
			o: inSlices(with(seen(1, upServer), func(o *observed) {
				o.sleepBegun, o.resolvers[0].phase = stamp(at(-200)), string(v1alpha1.PhaseFallingAsleep)
			}), lobby("", at(0)), ready),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: terminating, Requeue: linger},
		},
		"a client at a resolver cancels a sleep": {
			es: lobby(v1alpha1.PhaseFallingAsleep, at(-6)),
			o: inSlices(with(seen(1, upServer), func(o *observed) {
				o.sleepBegun, o.resolvers[0].sessions = stamp(time.Time{}), 1
				o.resolvers[0].phase = string(v1alpha1.PhaseFallingAsleep)
			}), lobby("", at(0)), ready),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: terminating, Requeue: 5 * time.Second},
		},
		"a sleep that another leader began begins anew": {
			es: lobby(v1alpha1.PhaseFallingAsleep, at(-6)),
			o: inSlices(with(seen(1, upServer), func(o *observed) {
				o.resolvers[0].phase = string(v1alpha1.PhaseFallingAsleep)
			}), lobby("", at(0)), ready),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: terminating, Requeue: linger},
		},
		"with handoff Never the resolver stays in front of an awake service": {
			es: never(lobby(v1alpha1.PhaseAwake, at(-30))),
			o: with(seen(1, upServer), func(o *observed) {
				o.service.Spec.Selector = nil
				o.resolvers[0].lastActive = at(-20)
			}),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: 40 * time.Second},
		},
		"handoff Never with a selector never sleeps, since clients go past the resolver": {
			es:   never(lobby(v1alpha1.PhaseAwake, at(-600))),
			o:    seen(1, upServer),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeProxy, Roles: ready},
		},
		"a deleted ElasticService wakes its target first": {
			es:   deleted(lobby(v1alpha1.PhaseAsleep, at(-600)), at(0)),
			o:    seen(0),
			want: want{Phase: v1alpha1.PhaseAsleep, Mode: v1alpha1.ModeProxy, Roles: ready, Raise: true, Requeue: linger},
		},
		"a deleted ElasticService goes once a server is up and the resolvers are empty": {
			es:   deleted(lobby(v1alpha1.PhaseAwake, at(-30)), at(-20)),
			o:    seen(1, upServer),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]role{}, Release: true, Requeue: linger},
		},
		"a deleted ElasticService with handoff Never hands over to its servers": {
			es: deleted(never(lobby(v1alpha1.PhaseAwake, at(-30))), at(0)),
			o: inSlices(with(seen(1, upServer), func(o *observed) {
				o.service.Spec.Selector = nil
				o.resolvers[0].sessions = 1
			}), lobby("", at(0)), ready),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: terminating, Requeue: linger},
		},
		"a deleted ElasticService whose Service is gone leaves its target awake": {
			es:   deleted(lobby(v1alpha1.PhaseAsleep, at(-600)), at(0)),
			o:    with(seen(0), func(o *observed) { o.service = nil }),
			want: want{Phase: v1alpha1.PhaseAsleep, Mode: v1alpha1.ModeProxy, Roles: ready, Raise: true, Release: true},
		},
		"a deleted ElasticService holds nobody up for longer than five minutes": {
			es:   deleted(lobby(v1alpha1.PhaseWaking, at(-600)), at(-300)),
			o:    seen(1),
			want: want{Phase: v1alpha1.PhaseWaking, Mode: v1alpha1.ModeProxy, Roles: ready, Release: true},
		},
		"a deleted ElasticService goes at once in a namespace that is going": {
			es:   deleted(lobby(v1alpha1.PhaseAsleep, at(-600)), at(0)),
			o:    with(seen(0), func(o *observed) { o.namespaceEnding = true }),
			want: want{Phase: v1alpha1.PhaseAsleep, Mode: v1alpha1.ModeProxy, Roles: ready, Release: true},
		},
		"a scale that can't be read changes nothing": {
			es: lobby(v1alpha1.PhaseAwake, at(-600)),
			o: with(seen(0), func(o *observed) {
				o.scale = scaleView{err: errors.New("timeout")}
			}),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]role{}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := makePlan(t0, c.es, c.o)
			got := want{p.phase, p.mode, p.roles, p.commit, p.raise, p.release, p.requeue}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDecide(t *testing.T) {
	quiet := func() idleness {
		return idleness{
			sleepAfter: time.Minute, handoff: v1alpha1.HandoffDirect, awakeSince: at(-600), hasTriggers: true,
			triggers: trigger.Reading{At: at(0), BelowSince: at(-60)},
		}
	}
	byPlayers := func(i *idleness) {
		i.hasTriggers, i.hasPlayers = false, true
		i.players = observedPlayers{idleSince: at(-60), reports: playerReports{asked: at(-2)}}
	}
	with := func(changes ...func(*idleness)) func(*idleness) {
		return func(i *idleness) {
			for _, f := range changes {
				f(i)
			}
		}
	}
	for name, c := range map[string]struct {
		change     func(*idleness)
		sleep, ask bool
		again      time.Duration
	}{
		"sleeps when everything was quiet for sleepAfter": {change: func(*idleness) {}, sleep: true},
		"0s means never": {change: func(i *idleness) { i.sleepAfter = 0 }},
		"handoff Direct without a trigger never sleeps":         {change: func(i *idleness) { i.hasTriggers = false }},
		"handoff Never needs no trigger":                        {change: func(i *idleness) { i.hasTriggers, i.handoff = false, v1alpha1.HandoffNever }, sleep: true},
		"a session keeps awake":                                 {change: func(i *idleness) { i.sessions = 1 }, again: 5 * time.Second},
		"a held client keeps awake":                             {change: func(i *idleness) { i.queued = 1 }, again: 5 * time.Second},
		"a resolver that doesn't answer keeps awake":            {change: func(i *idleness) { i.clientsErr = errors.New("timeout") }, again: 5 * time.Second},
		"a trigger at its threshold keeps awake":                {change: func(i *idleness) { i.triggers.BelowSince = time.Time{} }},
		"a trigger that can't be read keeps awake":              {change: func(i *idleness) { i.triggers.Err = errors.New("500") }},
		"a trigger must have been below for sleepAfter":         {change: func(i *idleness) { i.triggers.BelowSince = at(-59) }, again: time.Second},
		"the last client must have been gone for sleepAfter":    {change: func(i *idleness) { i.lastActive = at(-50) }, again: 10 * time.Second},
		"the service must have been awake for sleepAfter":       {change: func(i *idleness) { i.awakeSince = at(-20) }, again: 40 * time.Second},
		"a trigger that was never asked is no sign of idleness": {change: func(i *idleness) { i.triggers = trigger.Reading{} }},

		"players alone tell that a service is idle":       {change: byPlayers, sleep: true},
		"a player by a Server's status keeps awake":       {change: with(byPlayers, func(i *idleness) { i.players.busy = "lobby-1" })},
		"nobody must have played for sleepAfter":          {change: with(byPlayers, func(i *idleness) { i.players.idleSince = at(-58) }), again: 2 * time.Second},
		"nobody is asked before that":                     {change: with(byPlayers, func(i *idleness) { i.players.idleSince, i.players.reports = at(-58), playerReports{} }), again: 2 * time.Second},
		"reports that were never asked for are asked for": {change: with(byPlayers, func(i *idleness) { i.players.reports = playerReports{} }), ask: true, again: reportsFor},
		"reports of some seconds ago are asked for again": {change: with(byPlayers, func(i *idleness) { i.players.reports.asked = at(-3.5) }), ask: true, again: reportsFor},
		"a replica that doesn't answer keeps awake":       {change: with(byPlayers, func(i *idleness) { i.players.reports.err = errors.New("timeout") }), again: 5 * time.Second},
		"a player whom a replica knows of keeps awake":    {change: with(byPlayers, func(i *idleness) { i.players.reports.busy = "lobby-1" }), again: 5 * time.Second},
		"a Server that is silent keeps awake":             {change: with(byPlayers, func(i *idleness) { i.players.reports.silent = []string{"lobby-1"} }), again: 5 * time.Second},
		"a Server that was silent is asked for again": {change: with(byPlayers, func(i *idleness) {
			i.players.idleSince, i.players.reports = at(-4), playerReports{asked: at(-4), silent: []string{"lobby-1"}}
		}), ask: true, again: reportsFor},
		"a game that was just started keeps awake":   {change: with(byPlayers, func(i *idleness) { i.players.reports.young = []string{"lobby-1"} }), again: 5 * time.Second},
		"players don't stand in for a trigger":       {change: with(byPlayers, func(i *idleness) { i.hasTriggers, i.triggers.BelowSince = true, time.Time{} })},
		"a trigger doesn't stand in for the players": {change: with(byPlayers, func(i *idleness) { i.hasTriggers, i.players.busy = true, "lobby-1" })},
		"what was before the process started counts by the status, once it has watched for a while": {change: func(i *idleness) {
			i.sleepAfter, i.idleSince, i.triggers.BelowSince = 10*time.Minute, at(-600), at(-300)
		}, sleep: true},
		"not before it has": {change: func(i *idleness) {
			i.sleepAfter, i.idleSince, i.triggers.BelowSince = 10*time.Minute, at(-600), at(-290)
		}, again: 10 * time.Second},
		"nor before sleepAfter": {change: func(i *idleness) {
			i.sleepAfter, i.idleSince, i.triggers.BelowSince = 10*time.Minute, at(-590), at(-300)
		}, again: 10 * time.Second},
		"nor where a client has come since": {change: func(i *idleness) {
			i.sleepAfter, i.idleSince, i.triggers.BelowSince, i.lastActive = 10*time.Minute, at(-600), at(-300), at(-310)
		}, again: 5 * time.Minute},
		"nor where it was woken since": {change: func(i *idleness) {
			i.sleepAfter, i.idleSince, i.triggers.BelowSince, i.awakeSince = 10*time.Minute, at(-600), at(-300), at(-310)
		}, again: 5 * time.Minute},
		"a short time is watched in full": {change: func(i *idleness) { i.idleSince, i.triggers.BelowSince = at(-600), at(-59) }, again: time.Second},
		"so it is with resolvers that have just started": {change: func(i *idleness) {
			i.hasTriggers, i.handoff, i.sleepAfter, i.idleSince, i.watched = false, v1alpha1.HandoffNever, 10*time.Minute, at(-600), at(-300)
		}, sleep: true},
		"what the Servers say is nothing where not asked for": {change: func(i *idleness) { i.players.busy = "lobby-1" }, sleep: true},
	} {
		t.Run(name, func(t *testing.T) {
			in := quiet()
			c.change(&in)
			got := decide(t0, in)
			if got.sleep != c.sleep || got.again != c.again || got.askPlayers != c.ask || got.reason == "" {
				t.Errorf("decide = %+v, want sleep %v, again in %v, and a reason", got, c.sleep, c.again)
			}
		})
	}
}
