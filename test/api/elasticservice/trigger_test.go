package elasticservice_test

import (
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// triggerPort is where game servers tell how many players they have.
const triggerPort = 9000

// playerCount is what the pods of a target answer to a trigger.
type playerCount struct {
	handler atomic.Value // http.HandlerFunc
	asked   atomic.Int64
}

// answers makes the count answer in another way.
func (p *playerCount) answers(h http.HandlerFunc) { p.handler.Store(h) }

// is makes the count a number.
func (p *playerCount) is(players int) {
	p.answers(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"players":{"online":%d,"max":100}}`, players)
	})
}

// countPlayers starts the HTTP servers of game servers.
func countPlayers(t *testing.T, servers ...gameServer) *playerCount {
	t.Helper()
	p := &playerCount{}
	for _, s := range servers {
		ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", fmt.Sprintf("%s:%d", s.address, triggerPort))
		if err != nil {
			t.Fatalf("listen for game server %s: %v", s.address, err)
		}
		server := &http.Server{ReadHeaderTimeout: callTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p.asked.Add(1)
			if r.Method != http.MethodGet || r.URL.Path != "/status" || r.URL.RawQuery != "full=1" {
				http.Error(w, "unexpected request", http.StatusBadRequest)
				return
			}
			p.handler.Load().(http.HandlerFunc)(w, r)
		})}
		go func() { _ = server.Serve(ln) }()
		t.Cleanup(func() { _ = server.Close() })
	}
	return p
}

// byPlayers is idle below a number of players.
func byPlayers(threshold int64) func(*v1alpha1.ElasticService) {
	return func(es *v1alpha1.ElasticService) {
		es.Spec.Idle = &v1alpha1.Idle{Triggers: []v1alpha1.Trigger{{Type: v1alpha1.TriggerHTTP, HTTP: &v1alpha1.HTTPTrigger{
			Port: triggerPort, Path: "/status?full=1", JSONPointer: "/players/online", Threshold: threshold,
		}}}}
	}
}
