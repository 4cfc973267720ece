package upgrade

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"dormouse.dev/dormouse/test/e2e/suite"
)

var before = flag.String("before", "", "where the source of the Dormouse is from which, and back to which, it is upgraded")

func TestMain(m *testing.M) {
	flag.Parse()
	if *before == "" {
		fmt.Fprintln(os.Stderr, `-before is missing: run this with "make upgrade BEFORE=commit"`)
		os.Exit(1)
	}
	suite.Main(m)
}
