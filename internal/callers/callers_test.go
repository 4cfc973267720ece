package callers

import (
	"net/netip"
	"testing"
)

func TestWhatCountsAsOneCaller(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1":              "192.0.2.1/32",
		"::ffff:192.0.2.1":       "192.0.2.1/32",
		"2001:db8:1:2:3:4:5:6":   "2001:db8:1:2::/64",
		"2001:db8:1:2:ffff::abc": "2001:db8:1:2::/64",
		"fe80::1%eth0":           "fe80::/64",
	} {
		if got := Of(netip.MustParseAddr(address)); got.String() != want {
			t.Errorf("%s counts as %s, want %s", address, got, want)
		}
	}
	if got := Of(netip.Addr{}); got != (netip.Prefix{}) {
		t.Errorf("no address counts as %s", got)
	}
}
