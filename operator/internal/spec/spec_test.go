package spec

import (
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
)

func TestOnlyDormousesOwnKindsHavePlayers(t *testing.T) {
	for ref, want := range map[v1alpha1.ScaleTargetRef]bool{
		{APIVersion: "dormouse.dev/v1alpha1", Kind: "Fleet", Name: "a"}: true,
		{APIVersion: "dormouse.dev/v1", Kind: "Fleet", Name: "a"}:       true,
		{APIVersion: "dormouse.dev/v1", Kind: "GameType", Name: "a"}:    true,
		{APIVersion: "dormouse.dev/v1", Kind: "Server", Name: "a"}:      true,
		{APIVersion: "dormouse.dev/v1", Kind: "Front", Name: "a"}:       false,
		{APIVersion: "agones.dev/v1", Kind: "Fleet", Name: "a"}:         false,
		{APIVersion: "apps/v1", Kind: "Deployment", Name: "a"}:          false,
	} {
		es := fixture.Lobby(v1alpha1.PhaseAwake, fixture.At(-time.Minute.Seconds()))
		es.Spec.ScaleTargetRef, es.Spec.Idle.Players = ref, true
		if got := Of(es).HasPlayers; got != want {
			t.Errorf("%s %s has players: %t, want %t", ref.APIVersion, ref.Kind, got, want)
		}
	}
}
