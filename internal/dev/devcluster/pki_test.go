package devcluster

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

func testCluster(t *testing.T) *Cluster {
	t.Helper()
	return &Cluster{
		Plan: Plan{Nodes: 2, IPv6: true}, layout: layout{t.TempDir()}, BinDir: "/opt/bin",
	}
}

func TestACertificateIsGoodForItsNamesAndNoOthers(t *testing.T) {
	ca, err := newAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	issued, err := ca.issue(identity{
		user: "system:node:node-1", groups: []string{"system:nodes"},
		names: []string{"node-1"}, addrs: []netip.Addr{netip.MustParseAddr("10.250.0.11")},
	})
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := tls.X509KeyPair(issued.cert, issued.key)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(ca.cert)
	for name, valid := range map[string]bool{"node-1": true, "10.250.0.11": true, "node-2": false, "10.250.0.12": false} {
		_, err := loaded.Leaf.Verify(x509.VerifyOptions{DNSName: name, Roots: roots})
		if (err == nil) != valid {
			t.Errorf("verify for %s: %v", name, err)
		}
	}
	if got := loaded.Leaf.Subject; got.CommonName != "system:node:node-1" || len(got.Organization) != 1 {
		t.Errorf("subject is %s", got)
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
