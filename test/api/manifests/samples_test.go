package manifests_test

import (
	"testing"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/api/fixture"
)

// A GameType makes a Service and an ElasticService of its own name, and takes nobody else's.
func TestNoSampleTakesAnothersName(t *testing.T) {
	samples := build(t, fixture.Path("config", "samples"))
	games := map[string]bool{}
	for _, object := range samples {
		if object.GetKind() == "GameType" && object.GroupVersionKind().Group == v1alpha1.GroupVersion.Group {
			games[object.GetName()] = true
		}
	}
	if len(games) == 0 {
		t.Fatal("no sample has a GameType")
	}
	for _, object := range samples {
		switch object.GetKind() {
		case "Service", "ElasticService":
			if games[object.GetName()] {
				t.Errorf("GameType %s can't make its %s: another sample has one of the name", object.GetName(), object.GetKind())
			}
		}
	}
}
