package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"testing"
)

func TestACertificateIsGoodForItsNamesAndNoOthers(t *testing.T) {
	ca, err := NewAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	issued, err := ca.Issue(Identity{
		User: "system:node:node-1", Groups: []string{"system:nodes"},
		Names: []string{"node-1"}, Addrs: []netip.Addr{netip.MustParseAddr("10.250.0.11")},
	})
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := tls.X509KeyPair(issued.Cert, issued.Key)
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
