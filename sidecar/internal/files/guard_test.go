package files

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

func TestWrongPasswordsWaitLongerAndLonger(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	g := newGuard(func() time.Time { return now })
	a, b := netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("192.0.2.2/32")
	for i := range freeTries {
		if !g.try(a) {
			t.Fatalf("try %d has a delay", i)
		}
	}
	for _, wait := range []int{1, 2, 4, 8, 16, 32, 60, 60, 60} {
		now = now.Add(time.Duration(wait)*time.Second - 1)
		if g.try(a) {
			t.Fatalf("a try before %d s", wait)
		}
		if !g.try(b) {
			t.Fatal("another address waits")
		}
		g.succeeded(b)
		now = now.Add(1)
		if !g.try(a) {
			t.Fatalf("no try after %d s", wait)
		}
	}
	now = now.Add(forgetAfter + 1)
	for i := range freeTries {
		if !g.try(a) {
			t.Errorf("try %d after a long time has a delay", i)
		}
	}
	g.succeeded(a)
	if len(g.tries) != 0 {
		t.Errorf("%d addresses are remembered", len(g.tries))
	}
}

func TestAddressesAreBounded(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	g := newGuard(func() time.Time { return now })
	for i := range mostAddresses + 10 {
		now = now.Add(time.Millisecond)
		g.try(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32))
	}
	if len(g.tries) != mostAddresses {
		t.Errorf("%d addresses are remembered, want %d", len(g.tries), mostAddresses)
	}
	if g.tries[netip.MustParsePrefix("10.0.0.0/32")] != nil || g.tries[netip.MustParsePrefix("10.0.0.10/32")] == nil {
		t.Error("others than the oldest are forgotten")
	}
}

func TestWhatCountsAsOneAddress(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1":              "192.0.2.1/32",
		"::ffff:192.0.2.1":       "192.0.2.1/32",
		"2001:db8:1:2:3:4:5:6":   "2001:db8:1:2::/64",
		"2001:db8:1:2:ffff::abc": "2001:db8:1:2::/64",
	} {
		if got := addressOf(&net.TCPAddr{IP: net.ParseIP(address), Port: 1}); got.String() != want {
			t.Errorf("%s counts as %s, want %s", address, got, want)
		}
	}
}

// An address goes before others for a while after a login.
func TestWhoIsKnown(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	g := newGuard(func() time.Time { return now })
	a := netip.MustParsePrefix("192.0.2.1/32")
	if recent, wrong := g.standing(a); recent || wrong != 0 {
		t.Errorf("recent: %t, with %d wrong passwords", recent, wrong)
	}
	g.try(a)
	g.loggedIn(a)
	now = now.Add(recentFor)
	if recent, wrong := g.standing(a); !recent || wrong != 1 {
		t.Errorf("after a login, recent: %t, with %d wrong passwords", recent, wrong)
	}
	now = now.Add(1)
	if recent, _ := g.standing(a); recent {
		t.Error("it is recent for ever")
	}
	for i := range mostRecent + 10 {
		now = now.Add(time.Millisecond)
		g.loggedIn(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 32))
	}
	if _, ok := g.recent[a]; ok || len(g.recent) != mostRecent {
		t.Errorf("%d are remembered, want %d, and the oldest among them: %t", len(g.recent), mostRecent, ok)
	}
}
