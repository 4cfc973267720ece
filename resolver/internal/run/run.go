// Package run assembles the resolver and shuts it down in order: first it stops being ready,
// then it serves its clients to their end, and then it releases everything.
package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"

	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/internal/objectmetrics"
	"dormouse.dev/dormouse/internal/program"
	"dormouse.dev/dormouse/internal/serviceauth"
	"dormouse.dev/dormouse/internal/tokenfile"
	"dormouse.dev/dormouse/resolver/internal/accesslog"
	"dormouse.dev/dormouse/resolver/internal/control"
	"dormouse.dev/dormouse/resolver/internal/dataplane"
	"dormouse.dev/dormouse/resolver/internal/metrics"
	"dormouse.dev/dormouse/resolver/internal/options"
	"dormouse.dev/dormouse/resolver/internal/route"
	"dormouse.dev/dormouse/resolver/internal/wake"
)

const (
	// leeway allows for clocks that differ between nodes.
	leeway = 10 * time.Second
	// drainLook is how often a draining resolver checks whether it still has clients.
	drainLook = 200 * time.Millisecond
)

// Run runs the resolver until the context ends and its clients are gone.
func Run(ctx context.Context, p program.Process, config *rest.Config, opts options.Options) error {
	log := p.Log
	registry := p.NewRegistry()
	waker, err := wake.New(opts.OperatorURL, tokenfile.New(opts.TokenFile))
	if err != nil {
		return fmt.Errorf("making the wake client: %w", err)
	}
	verifier, err := serviceauth.New(config, serviceauth.Options{Audience: wellknown.TokenAudience, Leeway: leeway})
	if err != nil {
		return fmt.Errorf("making the token verifier: %w", err)
	}
	counts := metrics.New(registry)
	gatherer := objectmetrics.NewGatherer(registry)
	gatherer.Add(counts)
	var lines *accesslog.Log
	if opts.AccessLog {
		lines = accesslog.New(os.Stdout, counts.LineLost)
		defer lines.Close() // after the clients, which end with the data plane
	}
	plane := dataplane.New(dataplane.Options{
		Waker: waker, Metrics: counts, Log: log, AccessLog: lines,
		UDPIdle: opts.UDPIdle, TCPHalfClosed: opts.TCPHalfClosed, TCPIdle: opts.TCPIdle, MaxUDPSessions: opts.MaxUDPSessions, MaxHeldBytes: opts.MaxHeldBytes,
	})
	defer plane.Close()

	// These parts outlive ctx for as long as there are clients.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	own := route.NewOwn(opts.PodIPs)
	watcher, err := route.NewWatcher(running, config, opts.Namespaces, route.NewTable(plane), own)
	if err != nil {
		return fmt.Errorf("making the watcher: %w", err)
	}
	var draining atomic.Bool
	server := httpserver.New(httpserver.Options{
		Address: opts.HTTPAddress, Gatherer: gatherer, Registerer: registry, Log: log, OnPanic: p.Errors.Panic,
		// These come out of the files that are left for everything other than clients.
		MaxConnections: 512,
		Ready: func() error {
			switch {
			case draining.Load():
				return errors.New("the resolver is told to stop")
			case !watcher.Synced():
				return errors.New("the routes are not known yet")
			}
			return nil
		},
	})
	control.Register(server, plane, verifier, opts.OperatorServiceAccount) //nolint:contextcheck // its handlers have a request's life
	if err := server.Listen(running); err != nil {
		return err
	}

	group, groupCtx := errgroup.WithContext(running)
	for _, part := range []interface{ Start(context.Context) error }{watcher, server, verifier, waker} {
		group.Go(func() error {
			defer utilruntime.HandleCrash()
			return part.Start(groupCtx)
		})
	}
	log.Info("The resolver runs", "address", server.Addr().String(), "operator", opts.OperatorURL)
	select {
	case <-ctx.Done():
		draining.Store(true)
		drain(groupCtx, plane, own, opts, log)
	case <-groupCtx.Done():
	}
	stop()
	return group.Wait()
}

// clientCounter counts the clients that are relayed or held.
type clientCounter interface{ Clients() int }

// lists counts the slices that send clients here.
type lists interface{ Listed() int }

// drain serves clients until none is left. New ones are accepted until no slice lists this
// resolver as ready, because another one must be ready first, and for drain-delay at least,
// because nodes learn of that later. Both end at drain-timeout, when Kubernetes is about to end
// the Pod anyway.
func drain(ctx context.Context, plane clientCounter, own lists, opts options.Options, log logr.Logger) {
	log.Info("The resolver is told to stop", "carrying", plane.Clients(), "listed", own.Listed())
	began := time.Now()
	unlisted := began
	ticker := time.NewTicker(drainLook)
	defer ticker.Stop()
	for {
		now := time.Now()
		if own.Listed() > 0 {
			unlisted = now
		}
		alone := now.Sub(unlisted) >= opts.DrainDelay && own.Listed() == 0
		if now.Sub(began) >= opts.DrainTimeout || (alone && plane.Clients() == 0) {
			log.Info("The resolver stops", "carrying", plane.Clients(), "listed", own.Listed())
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
