package sdk

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/test/reports"
)

// nobodyYet is a port at which the first client that connects is cut off, and then nobody listens.
// The channel is closed after that. The port is none that the kernel gives to others meanwhile.
func nobodyYet(t *testing.T) (port int, refused <-chan struct{}) {
	t.Helper()
	for range 100 {
		port = 20_000 + rand.N(10_000)
		ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer ln.Close()
			c, err := ln.Accept()
			if err != nil {
				return
			}
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}()
		t.Cleanup(func() { _, _ = ln.Close(), <-done })
		return port, done
	}
	t.Fatal("all ports are taken")
	return 0, nil
}

func await(t *testing.T, refused <-chan struct{}) {
	t.Helper()
	select {
	case <-refused:
	case <-time.After(within):
		t.Fatal("the client doesn't connect")
	}
}

// The sidecar may start after the game, whose client then finds nobody at first.
func TestAClientMayComeBeforeTheSidecar(t *testing.T) {
	t.Parallel()
	port, refused := nobodyYet(t)
	c := startClient(t, port)
	c.begin("connect")
	await(t, refused)
	operator := reports.New(t)
	startSidecar(t, operator, fmt.Sprintf("--grpc-port=%d", port))
	if a := c.ended("connect"); a.Error != nil {
		t.Fatalf("connect: %+v", *a.Error)
	}
	c.call("ready")
	operator.Wait("a game that says that it is ready", func(r reportapi.Report) bool {
		return r.Game.State == v1alpha1.GameReady && r.Game.Reported
	})
}

// The same holds for gRPC's client for Go, with which Agones' SDK for Go waits until it is connected.
func TestAClientInGoMayComeBeforeTheSidecar(t *testing.T) {
	t.Parallel()
	port, refused := nobodyYet(t)
	c, err := grpc.NewClient(fmt.Sprintf("localhost:%d", port), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	c.Connect()
	await(t, refused)
	operator := reports.New(t)
	startSidecar(t, operator, fmt.Sprintf("--grpc-port=%d", port))
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	if err := c.Invoke(ctx, "/agones.dev.sdk.SDK/Ready", &emptypb.Empty{}, &emptypb.Empty{}, grpc.WaitForReady(true)); err != nil {
		t.Fatal(err)
	}
	operator.Wait("a game that says that it is ready", func(r reportapi.Report) bool {
		return r.Game.State == v1alpha1.GameReady && r.Game.Reported
	})
}
