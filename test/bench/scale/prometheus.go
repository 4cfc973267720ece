package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// answersAddress is where a Prometheus would be: an address that an administrator allows, which
// loopback's never is. answersPort is also that of each Pod's own number, since the addresses of
// Pods are local in the sandbox.
const (
	answersAddress = "10.244.255.254"
	answersPort    = 9090
	answersNetwork = answersAddress + "/32"
)

// answering is what the operator asks in place of a Prometheus and of Pods: it counts questions, and
// gives all of them the same number, but one, which it never answers.
type answering struct {
	busy             atomic.Bool
	prometheus, http atomic.Int64
	server           *http.Server
}

// answer begins to answer.
func answer(ctx context.Context) (*answering, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp4", fmt.Sprintf(":%d", answersPort))
	if err != nil {
		return nil, fmt.Errorf("listen for questions of triggers: %w", err)
	}
	a := &answering{}
	a.server = &http.Server{Handler: a, ReadHeaderTimeout: time.Second}
	go func() { _ = a.server.Serve(ln) }()
	return a, nil
}

// ServeHTTP implements http.Handler.
func (a *answering) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	number := "0"
	if a.busy.Load() {
		number = "1"
	}
	w.Header().Set("Content-Type", "application/json")
	if !strings.HasPrefix(r.URL.Path, "/api/v1/") {
		a.http.Add(1)
		fmt.Fprint(w, number)
		return
	}
	a.prometheus.Add(1)
	if strings.Contains(r.FormValue("query"), triggeredKey(unanswered).Name) {
		<-r.Context().Done()
		return
	}
	at := float64(time.Now().UnixMilli()) / 1000
	fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[%.3f,%q]}]}}`, at, number)
}

// asked is how many questions there were.
func (a *answering) asked() questions { return questions{a.prometheus.Load(), a.http.Load()} }

// questions are by the type of trigger.
type questions struct{ prometheus, http int64 }
