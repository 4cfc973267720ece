package route

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// front gives the service a part of the front games/mc.
func (s service) front(number int32, hosts ...v1alpha1.FrontHost) service {
	s.Status.Front = &v1alpha1.FrontStatus{Namespace: "games", Service: "mc", Port: "mc", TargetPort: "game", ResolverPort: number, Hosts: hosts}
	return s
}

func TestAHostIsFoundByTheNameThatSaysMost(t *testing.T) {
	t.Parallel()
	hosts := map[string]string{
		"play.example.com": "exact", "*.example.com": "below", "*.eu.example.com": "further below", "*.com": "all of com", "lobby": "bare",
	}
	for name, want := range map[string]string{
		"play.example.com":     "exact",
		"creative.example.com": "below",
		"a.b.example.com":      "below",
		"a.eu.example.com":     "further below",
		"eu.example.com":       "below",
		"example.com":          "all of com",
		"lobby":                "bare",
		"a.lobby":              "",
		"example.org":          "",
		"com":                  "",
		"":                     "",
		".":                    "",
		"*.example.com":        "",
		// Of 253 bytes, of more, and of thousands of dots.
		strings.Repeat("a.", 120) + "b.example.com":  "below",
		strings.Repeat("a.", 120) + "bb.example.com": "",
		strings.Repeat(".", 16<<10) + "example.com":  "",
	} {
		if got, ok := FindHost(hosts, name); got != want || ok != (want != "") {
			t.Errorf("%q leads to %q (%v), want %q", name, got, ok, want)
		}
	}
	hosts[AllHosts] = "the rest"
	for name, want := range map[string]string{
		"play.example.com": "exact", "a.lobby": "the rest", "com": "the rest", "": "the rest", "*": "the rest", "*.example.com": "the rest",
	} {
		if got, ok := FindHost(hosts, name); got != want || !ok {
			t.Errorf("where all names lead somewhere %q leads to %q (%v), want %q", name, got, ok, want)
		}
	}
}

func TestAFrontsRulesHoldWhereItsClientsAreKnown(t *testing.T) {
	t.Parallel()
	for _, preserved := range []bool{false, true} {
		es := newService("lobby", "u1", 0).port("game", v1alpha1.ProtocolMinecraft, 10001).front(10009, "a.example")
		es.Spec.Wake = &v1alpha1.Wake{DenyCIDRs: []string{"192.0.2.0/24"}, PerServiceRate: 3}
		es.Status.Front.TrustedCIDRs, es.Status.Front.MaxSessionsPerSource = []string{"10.0.0.0/8"}, 7
		es.Status.Front.SourceIPPreserved = preserved
		got := Build(es.ElasticService).Front
		if len(got.Trusted) != 1 || got.Trusted[0] != netip.MustParsePrefix("10.0.0.0/8") {
			t.Errorf("%v are trusted", got.Trusted)
		}
		if (got.MaxSessionsPerSource == 7) != preserved || got.Guard.SourceIPsPreserved != preserved || (len(got.Guard.Deny) == 1) != preserved || got.Guard.PerServiceRate != 3 {
			t.Errorf("where it is %v that sources are known there are %d sessions and %+v", preserved, got.MaxSessionsPerSource, got.Guard)
		}
		if own := Build(es.ElasticService).Ports[0].Guard; own.SourceIPsPreserved {
			t.Error("the service's own address has the front's sources")
		}
	}
}

func TestOfTwoRoutesWithAHostTheOlderHasIt(t *testing.T) {
	t.Parallel()
	s := newSink()
	table := NewTable(s)
	young := newService("young", "u1", time.Hour).port("game", v1alpha1.ProtocolMinecraft, 10001).front(10009, "a.example", "b.example")
	old := newService("old", "u2", 2*time.Hour).port("game", v1alpha1.ProtocolMinecraft, 10002).front(10009, "b.example", "c.example")
	hosts := func(uid string) []string {
		f := s.routes[young.UID].Front
		if uid == "u2" {
			f = s.routes[old.UID].Front
		}
		if f == nil {
			return nil
		}
		return f.Hosts
	}
	want := func(uid string, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, hosts(uid)); diff != "" {
			t.Errorf("hosts of %s (-want +got):\n%s", uid, diff)
		}
	}
	table.SetService(young.ElasticService)
	s.expect(t, "update u1")
	want("u1", "a.example", "b.example")

	// Who loses a host is told first, or both had it for a moment.
	table.SetService(old.ElasticService)
	s.expect(t, "update u1", "update u2")
	want("u1", "a.example")
	want("u2", "b.example", "c.example")

	// At another port of the front it is another host.
	table.SetService(service{old.DeepCopy()}.front(10008, "b.example").ElasticService)
	s.expect(t, "update u2", "update u1")
	want("u1", "a.example", "b.example")

	table.SetService(old.ElasticService)
	s.expect(t, "update u1", "update u2")
	table.DeleteService("games", "old")
	s.expect(t, "remove u2", "update u1")
	want("u1", "a.example", "b.example")

	bare := service{young.DeepCopy()}
	bare.Status.Front = nil
	table.SetService(bare.ElasticService)
	s.expect(t, "update u1")
	want("u1")
	table.DeleteService("games", "young")
	s.expect(t, "remove u1")
	if len(table.hosts) != 0 {
		t.Errorf("claims of %d hosts are left of what is gone", len(table.hosts))
	}
}
