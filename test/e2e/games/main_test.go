// Package games plays on Servers and Fleets: who comes, who stays, and who is
// never cut off.
package games

import (
	"flag"
	"testing"

	"dormouse.dev/dormouse/test/e2e/suite"
)

var sleeps = flag.Int("sleeps", 3, "how often a world sleeps and wakes")

func TestMain(m *testing.M) {
	flag.Parse()
	suite.Main(m)
}
