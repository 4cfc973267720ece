package dataplane

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/route"
)

func notFound(w http.ResponseWriter, _ int) { w.WriteHeader(http.StatusNotFound) }

func TestClientsOfAServiceThatCantWakeAreSentAway(t *testing.T) {
	r := newRig(t)
	var there atomic.Bool
	r.operator.set(func(w http.ResponseWriter, n int) {
		if there.Load() {
			accept(v1alpha1.PhaseWaking)(w, n)
			return
		}
		notFound(w, n)
	})
	tcp, udp := r.serve("game", route.TCP), r.serve("voice", route.UDP)
	started := time.Now()
	first := dialTCP(t, tcp)
	write(t, first, "hello")
	voice := dialUDP(t, udp)
	write(t, voice, "hello")
	r.queued(2)
	expectEnd(t, first)
	// A target that is replaced costs nobody the connection.
	if took := time.Since(started); took < 2500*time.Millisecond || took > patience {
		t.Errorf("the first client was sent away after %s, want about 3s", took)
	}
	r.queued(0)
	for protocol, want := range map[string]float64{"tcp": 1, "udp": 1} {
		labels := map[string]string{"reason": "nothing_to_wake", "protocol": protocol}
		r.eventually("the refusal is counted", func() bool { return r.metric("dormouse_resolver_refused_clients_total", labels) == want })
	}
	// Who comes afterwards isn't kept waiting.
	started = time.Now()
	expectEnd(t, dialTCP(t, tcp))
	if took := time.Since(started); took > 2*time.Second {
		t.Errorf("the second client was sent away after %s", took)
	}
	there.Store(true)
	c := dialTCP(t, tcp)
	write(t, c, "hello")
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, echo)
	r.backend(server, true)
	expect(t, c, "hello")
}

func TestAClientThatSentMoreThanIsKeptSeesItsEndToo(t *testing.T) {
	r := newRig(t)
	r.route.Hold.Timeout, r.route.Hold.MaxBytes = 200*time.Millisecond, 1024
	c := dialTCP(t, r.serve("game", route.TCP))
	if _, err := c.Write(make([]byte, 64<<10)); err != nil {
		t.Fatal(err)
	}
	expectEnd(t, c)
}

func TestAClientThatCameAfterTheCallWaitsForOneOfItsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.operator.set(notFound)
	address := r.serve("game", route.TCP)
	first := dialTCP(t, address)
	expectEnd(t, first)
	// Hope is lost from here on: one answer is enough.
	before := r.operator.count()
	asked, proceed := make(chan struct{}), make(chan struct{})
	r.operator.set(func(w http.ResponseWriter, n int) {
		if n == before+1 {
			close(asked)
			<-proceed
			notFound(w, n)
			return
		}
		accept(v1alpha1.PhaseWaking)(w, n)
	})
	second := dialTCP(t, address)
	<-asked
	third := dialTCP(t, address)
	write(t, third, "hello")
	r.queued(2)
	close(proceed)
	expectEnd(t, second)
	server := freeAddress(t, route.TCP)
	listenTCP(t, server, echo)
	r.backend(server, true)
	expect(t, third, "hello")
}
