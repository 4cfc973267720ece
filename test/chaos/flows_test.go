package chaos

import (
	"net/netip"
	"testing"
)

func TestFlowsAreReadFromConntrack(t *testing.T) {
	addr := netip.MustParseAddr("10.244.2.7")
	for line, want := range map[string]flow{
		"    [NEW] tcp      6 120 SYN_SENT src=10.250.0.100 dst=10.96.3.4 sport=41234 dport=7000 [UNREPLIED] src=10.244.2.7 dst=10.250.0.11 sport=10007 dport=6000": {"tcp", "41234"},
		"    [NEW] udp      17 30 src=10.250.0.100 dst=10.96.3.4 sport=555 dport=7001 [UNREPLIED] src=10.244.2.7 dst=10.250.0.11 sport=7001 dport=555":              {"udp", "555"},
	} {
		key, hop, ok := parseFlow(line)
		if !ok || key != want || hop != addr {
			t.Errorf("%q: %v to %v (%v), want %v to %v", line, key, hop, ok, want, addr)
		}
	}
	if _, _, ok := parseFlow("conntrack v1.4.7 (conntrack-tools): 2 flow events have been shown."); ok {
		t.Error("a line without a flow was taken for one")
	}
}
