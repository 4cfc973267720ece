package outbound

import (
	"net/netip"
	"strings"
	"testing"
)

var everything = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

func TestForbiddenAddressesAreNeverDialled(t *testing.T) {
	api := []netip.Addr{netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("::ffff:192.0.2.10"), netip.MustParseAddr("fd00::1")}
	a := Addresses{Networks: everything, Reserved: func() []netip.Addr { return api }}
	for address, what := range map[string]string{
		"127.0.0.1":              "loopback",
		"127.255.255.254":        "loopback",
		"0.0.0.0":                "unspecified",
		"0.1.2.3":                "unspecified",
		"169.254.169.254":        "link-local",
		"169.254.170.2":          "link-local",
		"224.0.0.1":              "multicast",
		"239.255.255.255":        "multicast",
		"255.255.255.255":        "broadcast",
		"240.0.0.1":              "reserved",
		"192.0.0.192":            "IETF",
		"100.100.100.200":        "metadata",
		"168.63.129.16":          "metadata",
		"10.96.0.1":              "API server",
		"192.0.2.10":             "API server",
		"fd00::1":                "API server",
		"fd00::1%eth0":           "API server",
		"::":                     "unspecified",
		"::1":                    "loopback",
		"fe80::1":                "link-local",
		"fe80::1%eth0":           "link-local",
		"febf::1":                "link-local",
		"fec0::1":                "site-local",
		"ff02::1":                "multicast",
		"fd00:ec2::254":          "metadata",
		"fd00:ec2::23":           "metadata",
		"fd20:ce::254":           "metadata",
		"::ffff:127.0.0.1":       "loopback",
		"::ffff:169.254.169.254": "link-local",
		"::ffff:10.96.0.1":       "API server",
		"64:ff9b::7f00:1":        "loopback",
		"64:ff9b::a9fe:a9fe":     "link-local",
		"64:ff9b::a60:1":         "API server",
		"64:ff9b::":              "unspecified",
		"64:ff9b:1::a9fe:a9fe":   "within an IPv6",
		"::7f00:1":               "within an IPv6",
		"::ffff:0:7f00:1":        "within an IPv6",
		"2002:7f00:1::":          "within an IPv6",
		"2001::1":                "within an IPv6",
	} {
		for _, service := range []bool{true, false} {
			err := a.Check(netip.MustParseAddr(address), service)
			if ReasonOf(err) != NotAllowed || !strings.Contains(err.Error(), what) {
				t.Errorf("%s for a Service (%t): %v, want %q", address, service, err, what)
			}
		}
	}
	for _, address := range []string{"10.96.0.2", "::ffff:10.96.0.2", "192.0.2.11", "64:ff9b::a60:2", "fd00::2", "2001:db8::1", "2606:4700::1"} {
		for _, service := range []bool{true, false} {
			if err := a.Check(netip.MustParseAddr(address), service); err != nil {
				t.Errorf("%s for a Service (%t): %v", address, service, err)
			}
		}
	}
}

func TestAURLNeedsTheAdministratorsListAndAServiceDoesNot(t *testing.T) {
	some := []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8::/32")}
	for address, listed := range map[string]bool{
		"192.0.2.7": true, "::ffff:192.0.2.7": true, "2001:db8::7": true,
		"192.0.3.7": false, "10.96.0.2": false, "64:ff9b::c000:207": false, "2001:db9::7": false,
	} {
		addr := netip.MustParseAddr(address)
		if err := (Addresses{Networks: some}).Check(addr, false); (err == nil) != listed {
			t.Errorf("%s by a URL: %v", address, err)
		}
		if err := (Addresses{}).Check(addr, false); err == nil {
			t.Errorf("%s is allowed by a URL without any list", address)
		}
		if err := (Addresses{}).Check(addr, true); err != nil {
			t.Errorf("%s as a Service's: %v", address, err)
		}
	}
}

func TestAddressesAreReadAtEachDial(t *testing.T) {
	var reserved []netip.Addr
	control := Addresses{Reserved: func() []netip.Addr { return reserved }}.Control(true)
	if err := control(t.Context(), "tcp4", "10.96.0.1:443", nil); err != nil {
		t.Fatal(err)
	}
	reserved = []netip.Addr{netip.MustParseAddr("10.96.0.1")}
	if err := control(t.Context(), "tcp4", "10.96.0.1:443", nil); ReasonOf(err) != NotAllowed {
		t.Errorf("a new address of the API server is dialled: %v", err)
	}
	for _, bad := range []string{"", "x", "10.0.0.1"} {
		if err := control(t.Context(), "tcp4", bad, nil); ReasonOf(err) != NotAllowed {
			t.Errorf("%q is dialled: %v", bad, err)
		}
	}
	if err := control(t.Context(), "udp4", "10.0.0.1:53", nil); ReasonOf(err) != NotAllowed {
		t.Errorf("UDP is dialled: %v", err)
	}
}
