// Command benchhost runs the resolver's data plane alone, for the benchmark that compares it
// with other proxies. It reads what to serve from its standard input, line by line, instead of
// from a cluster, and every wake call succeeds. All else is what a resolver runs.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/dataplane"
	"dormouse.dev/dormouse/resolver/internal/metrics"
	"dormouse.dev/dormouse/resolver/internal/route"
	"dormouse.dev/dormouse/resolver/internal/wake"
)

// The hold of every service: room for all clients that a benchmark holds at once.
const (
	holdTime    = time.Minute
	maxHeld     = 10_000
	maxHeldEach = 64 << 10
)

// change is one line of the input: Count services, each with one port, from Port up. They are
// asleep where there is no server. The answer is a line: "ok" or the error.
type change struct {
	Network route.Network  `json:"network"`
	Port    int32          `json:"port"`
	Count   int32          `json:"count"`
	Server  netip.AddrPort `json:"server"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "benchhost:", err)
		os.Exit(1)
	}
}

// run serves until the input ends.
func run(in io.Reader, out io.Writer) error {
	plane := dataplane.New(dataplane.Options{
		Host: "127.0.0.1", Waker: awake{}, Metrics: metrics.New(prometheus.NewRegistry()), Log: logr.Discard(),
	})
	defer plane.Close()
	lines := json.NewDecoder(bufio.NewReader(in))
	for {
		var c change
		switch err := lines.Decode(&c); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("read a change: %w", err)
		}
		answer := "ok"
		if err := c.apply(plane); err != nil {
			answer = err.Error()
		}
		if _, err := fmt.Fprintln(out, answer); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
}

func (c change) apply(plane *dataplane.Server) error {
	for i := range c.Count {
		plane.Update(c.route(c.Port + i))
	}
	for _, served := range plane.Routes().Routes {
		if port := served.Ports[0]; !port.Listening {
			return fmt.Errorf("open port %d: %s", port.Port, port.Error)
		}
	}
	return nil
}

func (c change) route(number int32) *route.Route {
	name := fmt.Sprintf("%s-%d", c.Network, number)
	r := &route.Route{
		UID: types.UID(name), Namespace: "bench", Name: name, Service: name, Phase: v1alpha1.PhaseAsleep,
		Hold:  route.Hold{Timeout: holdTime, MaxConnections: maxHeld, MaxBytes: maxHeldEach},
		Ports: []route.Port{{Name: "game", Protocol: v1alpha1.Protocol(c.Network), Network: c.Network, ResolverPort: number, Probed: true}},
	}
	if c.Server.IsValid() {
		r.Phase = v1alpha1.PhaseAwake
		r.Ports[0].Backends = []route.Backend{{Address: c.Server, Serving: true}}
	}
	return r
}

// awake answers wake calls.
type awake struct{}

// Wake implements hold.Waker.
func (awake) Wake(context.Context, string, string, int) wake.Result {
	return wake.Result{Outcome: wake.Accepted, Phase: v1alpha1.PhaseWaking}
}
