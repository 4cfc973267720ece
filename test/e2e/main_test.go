// Package e2e plays against Dormouse on a real Kubernetes: real kubelets,
// containers and kube-proxy, and players in a network namespace of their own.
package e2e

import (
	"testing"

	"dormouse.dev/dormouse/test/e2e/suite"
)

func TestMain(m *testing.M) { suite.Main(m) }
