package chaos

import (
	"net/netip"
	"testing"
	"time"

	"dormouse.dev/dormouse/test/chaos/schedule"
)

func TestOnlyABrokenWayExcusesALoss(t *testing.T) {
	base := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return base.Add(time.Duration(s) * time.Second) }
	var (
		resolver1 = netip.MustParseAddr("10.244.1.5")
		resolver2 = netip.MustParseAddr("10.244.2.5")
		server1   = netip.MustParseAddr("10.244.1.9")
		server2   = netip.MustParseAddr("10.244.2.9")
	)
	node := func(a netip.Addr) int { return int(a.As4()[2]) }
	killed := Outage{Fault: 1, Addr: resolver2, From: at(10), To: at(15)}
	paused := Outage{Fault: 2, Addr: resolver2, UDPOnly: true, From: at(10), To: at(15)}
	cut := Outage{Fault: 3, Node: 2, From: at(10), To: at(15)}
	session := func(network string, from, to int, hops ...netip.Addr) Session {
		return Session{Network: network, Dialed: at(from), Ended: at(to), Hops: hops}
	}
	for name, c := range map[string]struct {
		session Session
		outage  Outage
		excused bool
	}{
		"its resolver is killed":                       {session("tcp", 5, 20, resolver2, server1), killed, true},
		"another resolver is killed":                   {session("tcp", 5, 20, resolver1, server1), killed, false},
		"it goes straight to a server meanwhile":       {session("udp", 5, 20, server2), killed, false},
		"it was sent to the killed resolver":           {session("tcp", 12, 13, resolver2), killed, true},
		"it ended before the resolver was killed":      {session("tcp", 2, 9, resolver2, server1), killed, false},
		"it came when the resolver was back":           {session("tcp", 16, 20, resolver2, server1), killed, false},
		"it was moved away from the killed resolver":   {session("udp", 5, 20, resolver2, resolver1, server1), killed, true},
		"TCP through a paused resolver":                {session("tcp", 5, 20, resolver2, server1), paused, false},
		"UDP through a paused resolver":                {session("udp", 5, 20, resolver2, server1), paused, true},
		"its server's node is cut off":                 {session("tcp", 5, 20, server2), cut, true},
		"its resolver's node is cut off":               {session("udp", 5, 20, resolver2, server1), cut, true},
		"nothing of it is on the node that is cut off": {session("udp", 5, 20, resolver1, server1), cut, false},
		"nothing is known of its way":                  {session("tcp", 5, 20), cut, false},
	} {
		t.Run(name, func(t *testing.T) {
			by := excuse(c.session, []Outage{c.outage}, node)
			if (by != nil) != c.excused {
				t.Fatalf("excused by %+v, want excused %v", by, c.excused)
			}
			if by != nil && by.Fault != c.outage.Fault {
				t.Errorf("excused by fault %d, want %d", by.Fault, c.outage.Fault)
			}
		})
	}
}

func TestALossOnASurvivingPathFailsTheRun(t *testing.T) {
	const short = 3 * time.Minute
	r := &run{plan: schedule.Plan{Seed: 5, Duration: short}}
	lossy := func() *record { return &record{Session: Session{Network: "tcp", Loss: "3 messages without a reply"}} }
	p := newReport(r, short)
	e := &event{Fault: schedule.Fault{Kind: schedule.NodeCut}, number: 1}
	p.verdict(lossy(), &Outage{Fault: 1}, []*event{e}, []*event{e})
	if len(p.Failures) != 0 || p.Faults[schedule.NodeCut].LostSessions != 1 || p.Broken.LostSessions != 1 {
		t.Errorf("on a broken path: %+v, want it counted and no failure", p)
	}
	p.verdict(lossy(), nil, []*event{e}, []*event{e})
	if len(p.Failures) != 1 || p.Faults[schedule.NodeCut].Failed != 1 || p.Surviving.LostSessions != 1 {
		t.Errorf("on a surviving path: %+v, want one failure", p)
	}
}
