package endpoints

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/operator/internal/resolvers"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
)

func TestAResolverHasWhatItsPodReportsOfTheService(t *testing.T) {
	es := fixture.Lobby("", fixture.At(0))
	r := ResolverOf(&corev1.Pod{}, es, resolvers.View{
		ClockSkew: time.Second,
		Sessions: map[string]informerapi.Sessions{
			string(es.UID): {Sessions: 7, Queued: 2, Unvalidated: 5, LastActive: fixture.At(-60)},
			"es-2":         {Sessions: 1},
		},
	})
	if r.Sessions != 7 || r.Queued != 2 || r.Unvalidated != 5 || !r.LastActive.Equal(fixture.At(-59)) {
		t.Errorf("%d sessions, %d of them unvalidated, %d queued, last active %s", r.Sessions, r.Unvalidated, r.Queued, r.LastActive)
	}
}
