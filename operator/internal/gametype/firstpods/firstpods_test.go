package firstpods

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

var pods = []client.ObjectKey{{Namespace: "games", Name: "arena-0"}, {Namespace: "games", Name: "arena-1"}}

func TestAWakeWaitsForItsPodsButNotForLong(t *testing.T) {
	for name, c := range map[string]struct {
		// made are the Servers that could be made; appear is when the Pods come.
		made   int
		appear []time.Duration
		want   time.Duration
	}{
		"both come":                     {made: 2, appear: []time.Duration{4 * time.Millisecond, 9 * time.Millisecond}, want: 9 * time.Millisecond},
		"one Server was refused":        {made: 1, appear: []time.Duration{4 * time.Millisecond}, want: 4 * time.Millisecond},
		"all Servers were refused":      {},
		"one has no host port":          {made: 2, appear: []time.Duration{4 * time.Millisecond}, want: longest},
		"before its Server's answer is": {made: 2, appear: []time.Duration{0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &Pods{}
				began, wait := time.Now(), p.Expect(pods)
				for i, after := range c.appear {
					if after == 0 {
						p.made(pods[i])
						continue
					}
					time.AfterFunc(after, func() { p.made(pods[i]) })
				}
				p.made(client.ObjectKey{Namespace: "games", Name: "another"})
				wait(t.Context(), c.made)
				if took := time.Since(began); took != c.want {
					t.Errorf("it waits for %s, want %s", took, c.want)
				}
				if len(p.awaited) != 0 {
					t.Errorf("it remembers %d Pods", len(p.awaited))
				}
			})
		})
	}
}

func TestAWakeThatEndsWaitsForNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		(&Pods{}).Expect(pods)(ctx, len(pods))
		(*Pods)(nil).Expect(pods)(t.Context(), len(pods))
		if took := time.Since(began); took != 0 {
			t.Errorf("it waits for %s", took)
		}
	})
}
