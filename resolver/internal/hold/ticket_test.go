package hold

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

func TestATicketHasTheOutcomeOfEachWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		address := netip.MustParseAddrPort("127.0.0.1:7000")
		at := func(serving bool) *route.Route {
			return &route.Route{
				Phase: v1alpha1.PhaseAwake, Hold: route.Hold{MaxConnections: 10, Timeout: time.Minute},
				Ports: []route.Port{{Name: "web", Network: route.TCP, Probed: true, Backends: []route.Backend{{Address: address, Serving: serving}}}},
			}
		}
		q := New(at(false), Options{Waker: accepting{}})
		defer func() { q.Close(); q.Wait() }()
		ticket, err := q.Hold(PortID{"web", route.TCP}, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		waits := func(when string) {
			t.Helper()
			synctest.Wait()
			select {
			case <-ticket.Ended:
				t.Fatalf("%s the wait has ended: %+v", when, ticket.Outcome)
			default:
			}
		}
		waits("before a backend is up")
		q.Update(at(true))
		<-ticket.Ended
		if o := ticket.Outcome; o.Release.Address != address || o.Refused != "" {
			t.Errorf("the client is released to %s, or refused for %q, want %s", o.Release.Address, o.Refused, address)
		}
		q.Update(at(false))
		ticket.Back(netip.AddrPort{})
		waits("after it came back")
		q.Update(at(true))
		<-ticket.Ended
		if ticket.Leave() {
			t.Error("a client that was released leaves as if it still waited")
		}
		<-time.After(time.Minute)
		ticket.Back(netip.AddrPort{})
		<-ticket.Ended
		if o := ticket.Outcome; o.Refused != proto.TimedOut {
			t.Errorf("the client that came back after its time is refused for %q, want %q", o.Refused, proto.TimedOut)
		}
	})
}
