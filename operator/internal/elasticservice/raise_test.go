package elasticservice

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/tools/events"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
	"dormouse.dev/dormouse/operator/internal/test/seen"
)

// wakeScaler is a WakeScaler that is a function.
type wakeScaler func(context.Context, target.Ref, target.Replicas) (target.Raised, error)

// RaiseTo implements WakeScaler.
func (f wakeScaler) RaiseTo(ctx context.Context, ref target.Ref, want target.Replicas) (target.Raised, error) {
	return f(ctx, ref, want)
}

// keptAwake is a pass of a service at zero that something keeps awake. No Service has its endpoints.
func keptAwake(f wakeScaler) (*Reconciler, *pass) {
	r := &Reconciler{WakeScaler: f, Events: events.NewFakeRecorder(8)}
	r.Init()
	es := fixture.Lobby(v1alpha1.PhaseAsleep, fixture.At(0))
	o := seen.Of(0)
	o.Service = nil
	return r, &pass{original: es, es: es, state: r.stateOf(es), now: fixture.At(0), observed: o, plan: planner.Plan{Raise: true}}
}

// A GameType's Servers and bounds count for it as for a client, which only a WakeScaler knows.
func TestWhatIsKeptAwakeIsWokenByTheWakeScaler(t *testing.T) {
	var ref target.Ref
	r, p := keptAwake(func(_ context.Context, raised target.Ref, _ target.Replicas) (target.Raised, error) {
		ref = raised
		return target.Raised{After: 1}, nil
	})
	if _, ended, err := r.apply(t.Context(), p); ended || err != nil {
		t.Fatalf("the pass has ended: %t, error %v", ended, err)
	}
	if ref != target.Of(p.es) || p.raised.IsZero() {
		t.Errorf("it woke %s, at %s", ref, p.raised)
	}
}

// The endpoints are written after it: they may name a resolver that is gone.
func TestAWakeThatFailsDoesNotEndThePass(t *testing.T) {
	for name, f := range map[string]wakeScaler{
		"an error": func(context.Context, target.Ref, target.Replicas) (target.Raised, error) {
			return target.Raised{}, errors.New("the API server is gone")
		},
		"a webhook that hangs": func(ctx context.Context, _ target.Ref, _ target.Replicas) (target.Raised, error) {
			<-ctx.Done()
			return target.Raised{}, ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, p := keptAwake(f)
				if _, ended, err := r.apply(t.Context(), p); ended || err != nil {
					t.Errorf("the pass has ended: %t, error %v", ended, err)
				}
				if flaw := p.found.Flaw; flaw == nil || !strings.Contains(flaw.Message, "tries again") {
					t.Errorf("the flaw is %v", flaw)
				}
				if !p.raised.IsZero() {
					t.Errorf("it was woken at %s", p.raised)
				}
			})
		})
	}
}
