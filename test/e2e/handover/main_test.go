package handover

import (
	"flag"
	"testing"

	"dormouse.dev/dormouse/test/e2e/suite"
)

var (
	runs = flag.Int("runs", 4, "how many services change hands; -parallel says how many at once")
	seed = flag.Uint64("seed", 0, "what decides when players come; 0 for any")
)

func TestMain(m *testing.M) {
	flag.Parse()
	suite.Main(m)
}
