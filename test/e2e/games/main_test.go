// Package games plays on Servers and Fleets: who comes, who stays, and who is
// never cut off.
package games

import (
	"testing"

	"dormouse.dev/dormouse/test/e2e/suite"
)

func TestMain(m *testing.M) { suite.Main(m) }
