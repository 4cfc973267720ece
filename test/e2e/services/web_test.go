package services

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// webPort is the web server's port.
const webPort = 8080

// clientHeader is the header in which the web server tells from where the client came.
const clientHeader = "Client-Address"

// site is a web service that sleeps.
type site struct {
	env.Game
	address   string
	resolvers []netip.Addr
	// client speaks HTTP/1.1. dials counts its connections, and closed gets one value for each
	// that has ended.
	client *http.Client
	dials  atomic.Int32
	closed chan struct{}
}

// watched is a connection whose end is told.
type watched struct {
	net.Conn
	end func()
}

func (c *watched) Close() error {
	defer c.end()
	return c.Conn.Close()
}

// asleepSite makes a web service and waits until the resolver stands in for it.
func asleepSite(ctx context.Context, t *testing.T, g env.Game) *site {
	t.Helper()
	image, err := suite.Cluster.WebServer(ctx)
	if err != nil {
		t.Fatal(err)
	}
	g.Name, g.Image, g.Web, g.Probe = "web", image, []int32{webPort}, true
	suite.Asleep(ctx, t, g)
	s := &site{Game: g, address: suite.ClusterIP(ctx, t, g, webPort), closed: make(chan struct{}, 100)}
	if s.resolvers, err = suite.Cluster.ResolverAddrs(ctx); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		s.dials.Add(1)
		conn, err := suite.Cluster.DialPlayer(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &watched{Conn: conn, end: sync.OnceFunc(func() { s.closed <- struct{}{} })}, nil
	}}
	t.Cleanup(transport.CloseIdleConnections)
	s.client = &http.Client{Transport: transport}
	return s
}

// awake waits until no node sends new clients to the resolver.
func (s *site) awake(ctx context.Context, t *testing.T) {
	t.Helper()
	es, err := suite.Cluster.WaitPhase(ctx, s.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeServe)
	if err != nil {
		t.Fatal(err)
	}
	if err := suite.Cluster.WaitDirect(ctx, es, 1); err != nil {
		t.Fatal(err)
	}
}

// throughResolver reports whether a client that the server saw at an address came through the
// resolver.
func (s *site) throughResolver(t *testing.T, address string) bool {
	t.Helper()
	from, err := netip.ParseAddrPort(address)
	if err != nil {
		t.Errorf("the server saw the client at %q: %v", address, err)
	}
	return slices.Contains(s.resolvers, from.Addr().Unmap())
}

// talkRPC speaks gRPC over a connection of its own.
func (s *site) talkRPC(talk func(*grpc.ClientConn) (from string, err error)) (from string, err error) {
	conn, err := grpc.NewClient("passthrough:///"+s.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return suite.Cluster.DialPlayer(ctx, "tcp", address)
		}))
	if err != nil {
		return "", fmt.Errorf("make a client of gRPC: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return talk(conn)
}

// url is a path's on the service.
func (s *site) url(path string) string { return "http://" + s.address + path }
