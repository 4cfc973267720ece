package informerapi_test

import (
	"encoding/json"
	"testing"

	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/test/compat"
)

// While a release is rolled out its resolvers speak with operators of the last one, and
// the other way round.
func TestProgramsOfTwoReleasesUnderstandEachOther(t *testing.T) {
	compat.Samples[informerapi.WakeRequest](t, "wake-request", "8d9b056")
	compat.Samples[informerapi.WakeResponse](t, "wake-response")
	compat.Samples[informerapi.ErrorResponse](t, "error")
	compat.Samples[informerapi.RoutesResponse](t, "routes")
	compat.Samples[informerapi.SessionsResponse](t, "sessions")
}

// Resolvers of KubeElasti say the same, letter for letter.
func TestAWakeCallIsLikeKubeElastis(t *testing.T) {
	const want = `{"count":1,"svc":"lobby","namespace":"games"}`
	if got, err := json.Marshal(informerapi.WakeRequest{Count: 1, Svc: "lobby", Namespace: "games"}); err != nil || string(got) != want {
		t.Errorf("a wake call's body is %s, %v; want %s", got, err, want)
	}
}
