package planner_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/autoscaler"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/test/seen"
)

func TestPlan(t *testing.T) {
	ready := map[string]endpoints.Role{"resolver-1": endpoints.RoleReady}
	terminating := map[string]endpoints.Role{"resolver-1": endpoints.RoleTerminating}
	stamp := func(t time.Time) *time.Time { return &t }
	type want struct {
		Phase   v1alpha1.Phase
		Mode    v1alpha1.Mode
		Roles   map[string]endpoints.Role
		Commit  bool
		Raise   bool
		Release bool
		Requeue time.Duration
	}
	for name, c := range map[string]struct {
		es   *v1alpha1.ElasticService
		o    planner.Observed
		want want
	}{
		"a target at zero sleeps, whoever scaled it, and the resolver stands in": {
			es:   fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-600)),
			o:    seen.Of(0),
			want: want{Phase: v1alpha1.PhaseAsleep, Mode: v1alpha1.ModeProxy, Roles: ready},
		},
		"a resolver that doesn't listen yet gets no endpoint and is looked at again soon": {
			es:   fixture.Lobby("", fixture.At(0)),
			o:    seen.With(seen.Of(0), func(o *planner.Observed) { o.Resolvers[0].Listening = nil }),
			want: want{Phase: v1alpha1.PhaseAsleep, Mode: v1alpha1.ModeProxy, Roles: map[string]endpoints.Role{}, Requeue: 200 * time.Millisecond},
		},
		"a target that can't be scaled and has no server gets the resolver, who refuses": {
			es:   fixture.Lobby("", fixture.At(0)),
			o:    seen.With(seen.Of(0), func(o *planner.Observed) { o.Scale = planner.Scale{Err: target.ErrNotScalable} }),
			want: want{Mode: v1alpha1.ModeProxy, Roles: ready},
		},
		"a Service whose target can't be scaled is left to its servers": {
			es:   fixture.Lobby("", fixture.At(0)),
			o:    seen.With(seen.Of(0, seen.UpServer), func(o *planner.Observed) { o.Scale = planner.Scale{Err: target.ErrNotScalable} }),
			want: want{Mode: v1alpha1.ModeServe, Roles: map[string]endpoints.Role{}},
		},
		"a server without a probe that takes none of those who wait isn't up": {
			es:   fixture.Lobby(v1alpha1.PhaseWaking, fixture.At(-1)),
			o:    seen.With(seen.Of(1, seen.UpServer), seen.Unprobed, func(o *planner.Observed) { o.Resolvers[0].Queued = 1; o.UpSince = fixture.At(-2) }),
			want: want{Phase: v1alpha1.PhaseWaking, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: 500 * time.Millisecond},
		},
		"it is up once one has got through": {
			es: fixture.Lobby(v1alpha1.PhaseWaking, fixture.At(-1)),
			o: seen.With(seen.Of(1, seen.UpServer), seen.Unprobed, func(o *planner.Observed) {
				o.Resolvers[0].Queued, o.Resolvers[0].Sessions, o.UpSince = 1, 1, fixture.At(-2)
			}),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]endpoints.Role{}, Requeue: time.Second},
		},
		"it is up by Kubernetes' word where nobody waits": {
			es:   fixture.Lobby(v1alpha1.PhaseWaking, fixture.At(-1)),
			o:    seen.With(seen.Of(1, seen.UpServer), seen.Unprobed, func(o *planner.Observed) { o.UpSince = fixture.At(-2) }),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]endpoints.Role{}, Requeue: time.Minute},
		},
		"it is up by Kubernetes' word after half a minute": {
			es:   fixture.Lobby(v1alpha1.PhaseWaking, fixture.At(-1)),
			o:    seen.With(seen.Of(1, seen.UpServer), seen.Unprobed, func(o *planner.Observed) { o.Resolvers[0].Queued = 1; o.UpSince = fixture.At(-30) }),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]endpoints.Role{}, Requeue: time.Second},
		},
		"it stays up whoever waits": {
			es:   fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-1)),
			o:    seen.With(seen.Of(1, seen.UpServer), seen.Unprobed, func(o *planner.Observed) { o.Resolvers[0].Queued = 1; o.UpSince = fixture.At(-2) }),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]endpoints.Role{}, Requeue: time.Second},
		},
		"the clients of a wake are looked for soon": {
			es:   fixture.Lobby(v1alpha1.PhaseWaking, fixture.At(-1)),
			o:    seen.Of(1),
			want: want{Phase: v1alpha1.PhaseWaking, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: planner.WakePeriod},
		},
		"a wake that nobody waits for any more is left alone": {
			es:   fixture.Lobby(v1alpha1.PhaseWaking, fixture.At(-10)),
			o:    seen.Of(1),
			want: want{Phase: v1alpha1.PhaseWaking, Mode: v1alpha1.ModeProxy, Roles: ready},
		},
		"replicas without a server are waking": {
			es:   fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(-600)),
			o:    seen.Of(1, endpoints.Server{UID: "pod-1", Addresses: []string{"10.244.2.9"}}),
			want: want{Phase: v1alpha1.PhaseWaking, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: planner.WakePeriod},
		},
		"a server that is up takes over, and the resolver's endpoint lingers": {
			es:   fixture.Lobby(v1alpha1.PhaseWaking, fixture.At(-1)),
			o:    seen.InSlices(seen.Of(1, seen.UpServer), fixture.Lobby("", fixture.At(0)), ready),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: terminating, Requeue: endpoints.Linger},
		},
		"a resolver's endpoint stays while it carries clients": {
			es: fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-600)),
			o: seen.InSlices(seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) { o.Resolvers[0].Sessions = 3 }),
				fixture.Lobby("", fixture.At(0)), terminating),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: terminating, Requeue: 5 * time.Second},
		},
		"a resolver's endpoint goes ten seconds after its last client": {
			es: fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-30)),
			o: seen.InSlices(seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
				o.Resolvers[0].LastActive, o.Resolvers[0].SteppedDown = fixture.At(-10), fixture.At(-30)
			}), fixture.Lobby("", fixture.At(0)), terminating),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]endpoints.Role{}, Requeue: 50 * time.Second},
		},
		"and ten seconds after it stopped getting new ones, which nodes learn of later": {
			es: fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-30)),
			o: seen.InSlices(seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) { o.Resolvers[0].SteppedDown = fixture.At(-9) }),
				fixture.Lobby("", fixture.At(0)), terminating),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: terminating, Requeue: time.Second},
		},
		"a resolver pod that is going keeps its endpoint, though nobody is known to be there": {
			es: fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(-600)),
			o: seen.InSlices(seen.With(seen.Of(0), func(o *planner.Observed) {
				o.Resolvers[0].Ready = false
				o.Resolvers = append(o.Resolvers, seen.Standing("resolver-2"))
			}), fixture.Lobby("", fixture.At(0)), ready),
			want: want{
				Phase: v1alpha1.PhaseAsleep, Mode: v1alpha1.ModeProxy,
				Roles: map[string]endpoints.Role{"resolver-1": endpoints.RoleTerminating, "resolver-2": endpoints.RoleReady}, Requeue: endpoints.Linger,
			},
		},
		"a resolver that fell silent keeps its endpoint, for its clients' sake": {
			es: fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-600)),
			o: seen.InSlices(seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
				o.Resolvers[0].Reachable, o.Resolvers[0].SilentSince, o.Resolvers[0].Err = false, fixture.At(-299), errors.New("timeout")
			}), fixture.Lobby("", fixture.At(0)), terminating),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: terminating, Requeue: 5 * time.Second},
		},
		"a resolver that was silent for five minutes carries nobody": {
			es: fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-30)),
			o: seen.InSlices(seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
				o.Resolvers[0].Reachable, o.Resolvers[0].SilentSince, o.Resolvers[0].Err = false, fixture.At(-301), errors.New("timeout")
			}), fixture.Lobby("", fixture.At(0)), terminating),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]endpoints.Role{}, Requeue: 5 * time.Second},
		},
		"a resolver pod that is going gets no new clients and keeps those it has": {
			es: fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(-600)),
			o: seen.InSlices(seen.With(seen.Of(0), func(o *planner.Observed) {
				o.Resolvers[0].Ready, o.Resolvers[0].Queued = false, 1
				o.Resolvers = append(o.Resolvers, seen.Standing("resolver-2"))
			}), fixture.Lobby("", fixture.At(0)), ready),
			want: want{
				Phase: v1alpha1.PhaseAsleep, Mode: v1alpha1.ModeProxy,
				Roles: map[string]endpoints.Role{"resolver-1": endpoints.RoleTerminating, "resolver-2": endpoints.RoleReady}, Requeue: planner.MaxQueuedPeriod,
			},
		},
		"a blip of readiness changes nothing for five seconds": {
			es: fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-600)),
			o: seen.With(seen.Of(1, endpoints.Server{UID: "pod-1", Addresses: []string{"10.244.2.9"}}), func(o *planner.Observed) {
				o.NoneUpSince = fixture.At(-2)
			}),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]endpoints.Role{}, Requeue: 3 * time.Second},
		},
		"the resolver steps in when no server was up for five seconds": {
			es: fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-600)),
			o: seen.With(seen.Of(1, endpoints.Server{UID: "pod-1", Addresses: []string{"10.244.2.9"}}), func(o *planner.Observed) {
				o.NoneUpSince = fixture.At(-5)
			}),
			want: want{Phase: v1alpha1.PhaseWaking, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: planner.WakePeriod},
		},
		"the resolver steps in at once when the only server is going": {
			es: fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-600)),
			o: seen.With(seen.Of(1, endpoints.Server{UID: "pod-1", Addresses: []string{"10.244.2.9"}, Serving: true, Terminating: true}), func(o *planner.Observed) {
				o.NoneUpSince = fixture.At(0)
			}),
			want: want{Phase: v1alpha1.PhaseWaking, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: planner.WakePeriod},
		},
		"the resolver steps in at once when all servers drain": {
			es: fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-600)),
			o: seen.With(seen.Of(1, endpoints.Server{UID: "pod-1", Addresses: []string{"10.244.2.9"}, Serving: true, Draining: true}), func(o *planner.Observed) {
				o.NoneUpSince = fixture.At(0)
			}),
			want: want{Phase: v1alpha1.PhaseWaking, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: planner.WakePeriod},
		},
		"an idle service falls asleep with the resolver ready first": {
			es:   fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-60)),
			o:    seen.Of(1, seen.UpServer),
			want: want{Phase: v1alpha1.PhaseFallingAsleep, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: planner.Settle},
		},
		"no service falls asleep without a resolver that listens": {
			es:   fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-60)),
			o:    seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) { o.Resolvers[0].Listening = nil }),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]endpoints.Role{}, Requeue: time.Second},
		},
		"a sleep is not committed before kube-proxy had its time": {
			es: fixture.Lobby(v1alpha1.PhaseFallingAsleep, fixture.At(-2)),
			o: seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
				o.SleepBegun, o.Resolvers[0].Phase = stamp(time.Time{}), string(v1alpha1.PhaseFallingAsleep)
			}),
			want: want{Phase: v1alpha1.PhaseFallingAsleep, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: 3 * time.Second},
		},
		"a sleep is not committed before each resolver knows of it": {
			es: fixture.Lobby(v1alpha1.PhaseFallingAsleep, fixture.At(-6)),
			o: seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
				o.SleepBegun, o.Resolvers[0].Phase = stamp(time.Time{}), string(v1alpha1.PhaseAwake)
			}),
			want: want{Phase: v1alpha1.PhaseFallingAsleep, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: 100 * time.Millisecond},
		},
		"a sleep is not committed before the triggers were asked once more": {
			es: fixture.Lobby(v1alpha1.PhaseFallingAsleep, fixture.At(-6)),
			o: seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
				o.SleepBegun, o.Resolvers[0].Phase = stamp(time.Time{}), string(v1alpha1.PhaseFallingAsleep)
				o.Triggers.At = fixture.At(-1.5)
			}),
			want: want{Phase: v1alpha1.PhaseFallingAsleep, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: 200 * time.Millisecond},
		},
		"a sleep is not committed while a resolver that is going may still take clients": {
			es: fixture.Lobby(v1alpha1.PhaseFallingAsleep, fixture.At(-6)),
			o: seen.InSlices(seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
				o.SleepBegun = stamp(time.Time{})
				o.Resolvers[0].Ready, o.Resolvers[0].Phase, o.Resolvers[0].LastActive = false, string(v1alpha1.PhaseAwake), fixture.At(-60)
				o.Resolvers = append(o.Resolvers, seen.Standing("resolver-2"))
				o.Resolvers[1].Phase = string(v1alpha1.PhaseFallingAsleep)
			}), fixture.Lobby("", fixture.At(0)), terminating),
			want: want{
				Phase: v1alpha1.PhaseFallingAsleep, Mode: v1alpha1.ModeProxy,
				Roles:   map[string]endpoints.Role{"resolver-1": endpoints.RoleTerminating, "resolver-2": endpoints.RoleReady},
				Requeue: 100 * time.Millisecond,
			},
		},
		"a sleep waits until KEDA is paused": {
			es: fixture.Lobby(v1alpha1.PhaseFallingAsleep, fixture.At(-6)),
			o: seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
				o.SleepBegun, o.Resolvers[0].Phase = stamp(time.Time{}), string(v1alpha1.PhaseFallingAsleep)
				o.Autoscaler.Kind = v1alpha1.AutoscalerKEDA
			}),
			want: want{Phase: v1alpha1.PhaseFallingAsleep, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: 200 * time.Millisecond},
		},
		"a sleep beside an autoscaler that can't rest is cancelled": {
			es: fixture.Lobby(v1alpha1.PhaseFallingAsleep, fixture.At(-6)),
			o: seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
				o.SleepBegun, o.Resolvers[0].Phase = stamp(time.Time{}), string(v1alpha1.PhaseFallingAsleep)
				o.Autoscaler = autoscaler.Seen{Kind: v1alpha1.AutoscalerKEDA, Paused: true, Problem: &obstacle.Obstacle{}}
			}),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]endpoints.Role{}},
		},
		"no service falls asleep whose target would lose its disks": {
			es:   fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-60)),
			o:    seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) { o.Scale.LosesDisks = true }),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]endpoints.Role{}},
		},
		"nor does one whose servers don't come up": {
			es: fixture.Lobby(v1alpha1.PhaseWaking, fixture.At(-600)),
			o: seen.With(seen.Of(1), func(o *planner.Observed) {
				o.Scale.LosesDisks, o.Nobody, o.NoneUpSince, o.NoneLastingSince = true, true, fixture.At(-600), fixture.At(-600)
			}),
			want: want{Phase: v1alpha1.PhaseWaking, Mode: v1alpha1.ModeProxy, Roles: ready},
		},
		"a sleep in which the target would lose its disks is cancelled": {
			es: fixture.Lobby(v1alpha1.PhaseFallingAsleep, fixture.At(-6)),
			o: seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
				o.SleepBegun, o.Resolvers[0].Phase = stamp(time.Time{}), string(v1alpha1.PhaseFallingAsleep)
				o.Scale.LosesDisks = true
			}),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]endpoints.Role{}},
		},
		"a target at zero that loses its disks there is woken as any other": {
			es:   fixture.Deleted(fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(-600)), fixture.At(0)),
			o:    seen.With(seen.Of(0), func(o *planner.Observed) { o.Scale.LosesDisks = true }),
			want: want{Phase: v1alpha1.PhaseAsleep, Mode: v1alpha1.ModeProxy, Roles: ready, Raise: true, Requeue: endpoints.Linger},
		},
		"a sleep that nobody disturbed is committed": {
			es: fixture.Lobby(v1alpha1.PhaseFallingAsleep, fixture.At(-6)),
			o: seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
				o.SleepBegun, o.Resolvers[0].Phase = stamp(time.Time{}), string(v1alpha1.PhaseFallingAsleep)
			}),
			want: want{Phase: v1alpha1.PhaseFallingAsleep, Mode: v1alpha1.ModeProxy, Roles: ready, Commit: true},
		},
		"a wake cancels a sleep, even one stamped by a clock that is behind": {
			es: func() *v1alpha1.ElasticService {
				es := fixture.Lobby(v1alpha1.PhaseFallingAsleep, fixture.At(-6))
				es.Status.LastWakeTime = fixture.Micro(fixture.At(-100))
				return es
			}(),
			o: seen.InSlices(seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
				o.SleepBegun, o.Resolvers[0].Phase = stamp(fixture.At(-200)), string(v1alpha1.PhaseFallingAsleep)
			}), fixture.Lobby("", fixture.At(0)), ready),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: terminating, Requeue: endpoints.Linger},
		},
		"a client at a resolver cancels a sleep": {
			es: fixture.Lobby(v1alpha1.PhaseFallingAsleep, fixture.At(-6)),
			o: seen.InSlices(seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
				o.SleepBegun, o.Resolvers[0].Sessions = stamp(time.Time{}), 1
				o.Resolvers[0].Phase = string(v1alpha1.PhaseFallingAsleep)
			}), fixture.Lobby("", fixture.At(0)), ready),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: terminating, Requeue: 5 * time.Second},
		},
		"a sleep that another leader began begins anew": {
			es: fixture.Lobby(v1alpha1.PhaseFallingAsleep, fixture.At(-6)),
			o: seen.InSlices(seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
				o.Resolvers[0].Phase = string(v1alpha1.PhaseFallingAsleep)
			}), fixture.Lobby("", fixture.At(0)), ready),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: terminating, Requeue: endpoints.Linger},
		},
		"with handoff Never the resolver stays in front of an awake service": {
			es: fixture.Never(fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-30))),
			o: seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
				o.Service.Spec.Selector = nil
				o.Resolvers[0].LastActive = fixture.At(-20)
			}),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: 40 * time.Second},
		},
		"the last client of a resolver that is gone counts as any other": {
			es: fixture.Never(fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-600))),
			o: seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
				o.Service.Spec.Selector = nil
				o.LastActive, o.Resolvers[0].LastActive = fixture.At(-20), fixture.At(-300)
			}),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: 40 * time.Second},
		},
		"handoff Never with a selector never sleeps, since clients go past the resolver": {
			es:   fixture.Never(fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-600))),
			o:    seen.Of(1, seen.UpServer),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeProxy, Roles: ready},
		},
		"a deleted ElasticService wakes its target first": {
			es:   fixture.Deleted(fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(-600)), fixture.At(0)),
			o:    seen.Of(0),
			want: want{Phase: v1alpha1.PhaseAsleep, Mode: v1alpha1.ModeProxy, Roles: ready, Raise: true, Requeue: endpoints.Linger},
		},
		"a deleted ElasticService goes once a server is up and the resolvers are empty": {
			es:   fixture.Deleted(fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-30)), fixture.At(-20)),
			o:    seen.Of(1, seen.UpServer),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]endpoints.Role{}, Release: true, Requeue: endpoints.Linger},
		},
		"a deleted ElasticService with handoff Never hands over to its servers": {
			es: fixture.Deleted(fixture.Never(fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-30))), fixture.At(0)),
			o: seen.InSlices(seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
				o.Service.Spec.Selector = nil
				o.Resolvers[0].Sessions = 1
			}), fixture.Lobby("", fixture.At(0)), ready),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: terminating, Requeue: endpoints.Linger},
		},
		"a deleted ElasticService leaves the target asleep that an older one has": {
			es:   fixture.Deleted(fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(-600)), fixture.At(0)),
			o:    seen.With(seen.Of(0), func(o *planner.Observed) { o.TargetTaken = "older" }),
			want: want{Phase: v1alpha1.PhaseAsleep, Mode: v1alpha1.ModeProxy, Roles: ready, Release: true},
		},
		"and hands over first where that is awake": {
			es: fixture.Deleted(fixture.Never(fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-30))), fixture.At(0)),
			o: seen.InSlices(seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
				o.Service.Spec.Selector = nil
				o.TargetTaken, o.Resolvers[0].Sessions = "older", 1
			}), fixture.Lobby("", fixture.At(0)), ready),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: terminating, Requeue: endpoints.Linger},
		},
		"a deleted ElasticService whose Service is gone leaves its target awake": {
			es:   fixture.Deleted(fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(-600)), fixture.At(0)),
			o:    seen.With(seen.Of(0), func(o *planner.Observed) { o.Service = nil }),
			want: want{Phase: v1alpha1.PhaseAsleep, Mode: v1alpha1.ModeProxy, Roles: ready, Raise: true, Release: true},
		},
		"a deleted ElasticService holds nobody up for longer than five minutes": {
			es:   fixture.Deleted(fixture.Lobby(v1alpha1.PhaseWaking, fixture.At(-600)), fixture.At(-300)),
			o:    seen.Of(1),
			want: want{Phase: v1alpha1.PhaseWaking, Mode: v1alpha1.ModeProxy, Roles: ready, Release: true},
		},
		"a deleted ElasticService goes at once in a namespace that is going": {
			es:   fixture.Deleted(fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(-600)), fixture.At(0)),
			o:    seen.With(seen.Of(0), func(o *planner.Observed) { o.NamespaceEnding = true }),
			want: want{Phase: v1alpha1.PhaseAsleep, Mode: v1alpha1.ModeProxy, Roles: ready, Release: true},
		},
		"clients wait for the next target where none is there": {
			es: fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-600)),
			o: seen.With(seen.Of(0), func(o *planner.Observed) {
				o.Scale = planner.Scale{Err: fmt.Errorf("there is no Deployment: %w", target.ErrNotFound)}
			}),
			want: want{Phase: v1alpha1.PhaseWaking, Mode: v1alpha1.ModeProxy, Roles: ready, Requeue: planner.WakePeriod},
		},
		"servers that have come without it serve": {
			es: fixture.Lobby(v1alpha1.PhaseWaking, fixture.At(-600)),
			o: seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
				o.Scale = planner.Scale{Err: fmt.Errorf("there is no Deployment: %w", target.ErrNotFound)}
			}),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]endpoints.Role{}},
		},
		"servers that are left serve until they are gone": {
			es: fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-600)),
			o: seen.With(seen.Of(1, seen.UpServer), func(o *planner.Observed) {
				o.Scale = planner.Scale{Err: fmt.Errorf("there is no Deployment: %w", target.ErrNotFound)}
			}),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]endpoints.Role{}},
		},
		"a scale that can't be read changes nothing": {
			es: fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-600)),
			o: seen.With(seen.Of(0), func(o *planner.Observed) {
				o.Scale = planner.Scale{Err: errors.New("timeout")}
			}),
			want: want{Phase: v1alpha1.PhaseAwake, Mode: v1alpha1.ModeServe, Roles: map[string]endpoints.Role{}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := seen.Plan(fixture.T0, c.es, c.o, planner.Findings{})
			got := want{p.Phase, p.Mode, p.Roles, p.Commit, p.Raise, p.Release, p.RequeueAfter.Duration()}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}
