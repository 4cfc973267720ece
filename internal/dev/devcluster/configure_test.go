package devcluster

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"dormouse.dev/dormouse/internal/dev/devcluster/plan"
)

func testCluster(t *testing.T) *Cluster {
	t.Helper()
	return &Cluster{
		Plan: plan.Plan{Nodes: 2, IPv6: true}, layout: layout{t.TempDir()}, BinDir: "/opt/bin",
	}
}

func TestEtcdsAuthorityDoesNotVouchForTheClustersUsers(t *testing.T) {
	for _, cert := range testCluster(t).certificates() {
		if cert.kubeconfig != "" && cert.authority != "ca" {
			t.Errorf("the kubeconfig of %s has a certificate from %s", cert.name, cert.authority)
		}
	}
}

func TestConfigureWritesEveryFileThatAComponentIsGiven(t *testing.T) {
	c := testCluster(t)
	if err := c.configure(); err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.LoadFromFile(c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if got := config.Clusters["dormouse"].Server; got != c.APIServerURL() {
		t.Errorf("kubeconfig is for %s, want %s", got, c.APIServerURL())
	}
	for _, comp := range c.components() {
		for _, arg := range comp.argv {
			for _, path := range pathsIn(c.dir, arg) {
				if path == c.auditLog() {
					path = filepath.Dir(path) // The API server makes the file itself.
				}
				if _, err := os.Stat(path); err != nil {
					t.Errorf("%s is given %s: %v", comp.name, arg, err)
				}
			}
		}
	}
	for _, private := range []string{c.pki("ca.key"), c.pki("sa.key"), c.Kubeconfig()} {
		info, err := os.Stat(private)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", filepath.Base(private), info.Mode())
		}
	}
}
