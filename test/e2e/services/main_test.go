// Package services checks that workloads which are no games sleep and wake: web services, with
// all that is spoken over HTTP, and other kinds of targets than Deployments.
package services

import (
	"testing"

	"dormouse.dev/dormouse/test/e2e/suite"
)

func TestMain(m *testing.M) { suite.Main(m) }
