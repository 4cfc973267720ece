// Package observability has Debian's Prometheus watch Dormouse in the local
// cluster, as the guide says how, and asks it all that dashboards and alerts ask.
package observability

import (
	"testing"

	"dormouse.dev/dormouse/test/e2e/suite"
)

func TestMain(m *testing.M) { suite.Main(m) }
