package informerapi_test

import (
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
