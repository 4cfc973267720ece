package scalewebhook

import (
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"

	"dormouse.dev/dormouse/operator/internal/outbound"
)

var everything = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

func TestTheCheckIsOfTheAddressThatIsDialled(t *testing.T) {
	var asked atomic.Int32
	address := serve(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	_, port, _ := net.SplitHostPort(address)
	c := New(Options{
		Addresses: outbound.Addresses{Networks: everything},
		Services:  services{"games/hook": at("games", "hook", address)}.lookup,
	})
	t.Cleanup(c.Close)
	for name, e := range map[string]Endpoint{
		"by address":        {URL: "http://" + address},
		"by name":           {URL: "http://localhost:" + port},
		"IPv4-mapped":       {URL: "http://[::ffff:127.0.0.1]:" + port},
		"unspecified":       {URL: "http://0.0.0.0:" + port},
		"unspecified IPv6":  {URL: "http://[::]:" + port},
		"a Service's":       {Service: hook()},
		"a zone":            {URL: "http://[fe80::1%25lo]:" + port},
		"metadata by NAT64": {URL: "http://[64:ff9b::a9fe:a9fe]:" + port},
	} {
		_, err := c.Ask(t.Context(), e, lobby("games"))
		if ReasonOf(err) != NotAllowed {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("it was asked %d times", n)
	}
}
