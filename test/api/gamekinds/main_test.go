// Package gamekinds_test checks what the API server takes and refuses of Servers,
// Fleets and GameTypes.
package gamekinds_test

import (
	"os"
	"testing"

	"dormouse.dev/dormouse/test/api/fixture"
)

func TestMain(m *testing.M) { os.Exit(fixture.Main(m, fixture.Options{})) }
