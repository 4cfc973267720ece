// Package run assembles the sidecar and shuts it down in order: first the game ends, then the
// last report is sent, and then everything is released.
package run

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/utils/clock"

	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/internal/program"
	"dormouse.dev/dormouse/internal/reporttoken"
	"dormouse.dev/dormouse/internal/tokenfile"
	"dormouse.dev/dormouse/sidecar/internal/game"
	"dormouse.dev/dormouse/sidecar/internal/gameapi"
	"dormouse.dev/dormouse/sidecar/internal/local"
	"dormouse.dev/dormouse/sidecar/internal/metrics"
	"dormouse.dev/dormouse/sidecar/internal/options"
	"dormouse.dev/dormouse/sidecar/internal/outlive"
	"dormouse.dev/dormouse/sidecar/internal/probe"
	"dormouse.dev/dormouse/sidecar/internal/probing"
	"dormouse.dev/dormouse/sidecar/internal/report"
	"dormouse.dev/dormouse/sidecar/internal/sdk"
)

// loopback is the address of the game, and of the sidecar for the game.
const loopback = "127.0.0.1"

// credential is what the sidecar shows who it is with.
func credential(opts options.Options) (report.Token, error) {
	if opts.ReportKeyID == "" {
		return tokenfile.New(opts.TokenFile), nil
	}
	pod := reporttoken.Pod{Namespace: opts.Namespace, Name: opts.Name, UID: opts.PodUID}
	return reporttoken.NewSigner(opts.ReportKeyID, opts.ReportKey, pod) //nolint:wrapcheck // it says all
}

// Run runs the sidecar until the context ends, the game that it outlives is gone, and the last
// report is sent.
func Run(ctx context.Context, p program.Process, opts options.Options) error {
	log := p.Log
	g := game.New(opts.Game, clock.RealClock{})
	registry := p.NewRegistry()
	m := metrics.New(registry, g.Snapshot)

	token, err := credential(opts)
	if err != nil {
		return err
	}
	reports, err := report.New(opts.OperatorURL, opts.Name, token, g, m, log)
	if err != nil {
		return fmt.Errorf("making the reporter: %w", err)
	}
	public := httpserver.New(httpserver.Options{
		Address: opts.ListenAddress, Gatherer: registry, Registerer: registry, Log: log, OnPanic: p.Errors.Panic,
		Ready: func() error {
			if why := g.Snapshot().NotReady; why != "" {
				return errors.New(why)
			}
			return nil
		},
	})

	gameapi.Register(public, opts.GameAPICode, g)

	// The servers for the game go on beyond ctx, until the last report is sent.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if err := public.Listen(running); err != nil {
		return err
	}
	private, err := listen(running, opts, g, log, p.Errors)
	if err != nil {
		return err
	}
	defer private.close()

	group, groupCtx := errgroup.WithContext(running)
	group.Go(func() error { return g.Run(groupCtx) })
	group.Go(func() error {
		logReadiness(groupCtx, g, log)
		return nil
	})
	group.Go(func() error { return public.Start(groupCtx) })
	private.serve(group)
	if opts.Game.Probed {
		address := net.JoinHostPort(loopback, strconv.Itoa(opts.ProbePort))
		prober, err := probe.New(probe.Kind(opts.ProbeType), address)
		if err != nil {
			return fmt.Errorf("making the probe: %w", err)
		}
		loop := &probing.Loop{Prober: prober, Game: g, Period: opts.Game.Health.Period, Metrics: m, Log: log}
		group.Go(func() error { return loop.Run(groupCtx) })
	}
	// The reporter ends once the game is gone, after its last report, and all else ends after it.
	reporting, cancel := context.WithCancel(groupCtx)
	defer cancel()
	group.Go(func() error {
		defer cancel()
		select {
		case <-ctx.Done():
		case <-groupCtx.Done():
		}
		if !opts.OutliveGame {
			return nil
		}
		g := outlive.Game{Ports: opts.GamePorts, SDKPorts: []int{private.grpcPort, private.httpPort}}
		if err := g.Wait(groupCtx); err != nil {
			log.Error(err, "The sidecar ends without knowing whether the game has")
		}
		return nil
	})
	group.Go(func() error {
		defer stop()
		defer private.close()
		return reports.Run(reporting)
	})
	log.Info("The sidecar runs", "server", opts.Namespace+"/"+opts.Name, "operator", opts.OperatorURL,
		"grpcPort", private.grpcPort, "httpPort", private.httpPort, "listen", public.Addr().String())
	return group.Wait()
}

// privateServers are the servers for the game.
type privateServers struct {
	grpc                         *grpc.Server
	http                         *http.Server
	gateway                      *grpc.ClientConn
	grpcListeners, httpListeners []net.Listener
	grpcPort, httpPort           int
}

// listen opens the ports for the game.
func listen(ctx context.Context, opts options.Options, g *game.Game, log logr.Logger, reporter *errortracking.Reporter) (*privateServers, error) {
	recovered := func(value any, stack []byte) {
		log.Error(fmt.Errorf("panic: %v", value), "A call of the game panicked", "stack", string(stack))
		reporter.Panic(value, stack)
	}
	p := &privateServers{grpc: sdk.New(g, opts.Game.Health, recovered).GRPC()}
	var err error
	if p.grpcListeners, p.grpcPort, err = listenLoopback(ctx, opts.GRPCPort); err != nil {
		return nil, err
	}
	if p.httpListeners, p.httpPort, err = listenLoopback(ctx, opts.HTTPPort); err != nil {
		p.close()
		return nil, err
	}
	// Neither proxy nor name resolution: it is this process itself.
	target := "passthrough:///" + net.JoinHostPort(loopback, strconv.Itoa(p.grpcPort))
	p.gateway, err = grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		p.close()
		return nil, fmt.Errorf("connecting the REST API: %w", err)
	}
	rest, err := sdk.Gateway(ctx, p.gateway)
	if err != nil {
		p.close()
		return nil, err
	}
	p.http = local.NewServer(g, rest, recovered)
	// Its close doesn't end WebSockets.
	p.http.BaseContext = func(net.Listener) context.Context { return ctx }
	return p, nil
}

// serve serves until close.
func (p *privateServers) serve(group *errgroup.Group) {
	for _, ln := range p.grpcListeners {
		group.Go(func() error {
			if err := p.grpc.Serve(ln); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
				return fmt.Errorf("serving gRPC on %s: %w", ln.Addr(), err)
			}
			return nil
		})
	}
	for _, ln := range p.httpListeners {
		group.Go(func() error {
			if err := p.http.Serve(ln); err != nil && !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serving HTTP on %s: %w", ln.Addr(), err)
			}
			return nil
		})
	}
}

// close ends all calls, because the game that made them is gone. It may be called again.
func (p *privateServers) close() {
	p.grpc.Stop()
	if p.http != nil {
		_ = p.http.Close()
	}
	if p.gateway != nil {
		_ = p.gateway.Close()
	}
	closeAll(p.grpcListeners)
	closeAll(p.httpListeners)
}
