package dataplane

import (
	"context"
	"testing"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// broken is a protocol with a bug.
type broken struct{ lines }

func (broken) Inspect([]byte, proto.Client) proto.Verdict { panic("a bug") }

// A panic ends the process, whose handlers tell Sentry first. Both are replaced
// here, which is why this test runs alone.
func TestPanicsOfTheDataPlaneReachTheHandlers(t *testing.T) {
	seen := make(chan any, 2)
	handlers, crash := utilruntime.PanicHandlers, utilruntime.ReallyCrash
	t.Cleanup(func() { utilruntime.PanicHandlers, utilruntime.ReallyCrash = handlers, crash })
	utilruntime.PanicHandlers = []func(context.Context, any){func(_ context.Context, value any) { seen <- value }}
	utilruntime.ReallyCrash = false
	r := newRig(t, func(o *Options) {
		o.Protocols = map[v1alpha1.Protocol]proto.Protocol{
			v1alpha1.ProtocolTCP: broken{lines{"tcp"}}, v1alpha1.ProtocolUDP: broken{lines{"udp"}},
		}
	})
	tcp, udp := r.serve("tcp", route.TCP), r.serve("udp", route.UDP)
	write(t, dialTCP(t, tcp), "hello\n")
	write(t, dialUDP(t, udp), "hello\n")
	for range 2 {
		select {
		case value := <-seen:
			if value != "a bug" {
				t.Errorf("a handler was told %v", value)
			}
		case <-time.After(patience):
			t.Fatal("a panic reached no handler")
		}
	}
}
