package reportapi_test

import (
	"testing"

	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/test/compat"
)

// A game keeps its sidecar for as long as it runs, through upgrades of the operator and
// back.
func TestProgramsOfTwoReleasesUnderstandEachOther(t *testing.T) {
	compat.Samples[reportapi.Report](t, "report", "8d9b056 but looked")
	compat.Samples[reportapi.Answer](t, "answer")
	compat.Samples[reportapi.Recent](t, "recent")
}
