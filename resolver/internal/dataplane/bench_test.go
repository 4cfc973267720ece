package dataplane

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/route"
)

func BenchmarkTCPRelayThroughput(b *testing.B) {
	r := newRig(b)
	address := r.serve("game", route.TCP, probed)
	server := freeAddress(b, route.TCP)
	listenTCP(b, server, func(c *net.TCPConn) {
		buf := make([]byte, 256<<10)
		for {
			if _, err := c.Read(buf); err != nil {
				return
			}
		}
	})
	r.backend(server, true)
	r.phase(v1alpha1.PhaseAwake)
	c := dialTCP(b, address)
	_ = c.SetDeadline(time.Time{})
	chunk := make([]byte, 64<<10)
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(chunk); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTCPRelayRoundTrip(b *testing.B) {
	r := newRig(b)
	address := r.serve("game", route.TCP, probed)
	server := freeAddress(b, route.TCP)
	listenTCP(b, server, func(c *net.TCPConn) {
		buf := make([]byte, 1024)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			if _, err := c.Write(buf[:n]); err != nil {
				return
			}
		}
	})
	r.backend(server, true)
	r.phase(v1alpha1.PhaseAwake)
	c := dialTCP(b, address)
	_ = c.SetDeadline(time.Time{})
	buf := make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, buf); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkUDPRoundTrip is two packets an operation, one each way.
func BenchmarkUDPRoundTrip(b *testing.B) {
	r := newRig(b)
	address := r.serve("game", route.UDP)
	server := freeAddress(b, route.UDP)
	s, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(server)))
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	go func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := s.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = s.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	r.backend(server, true)
	c := dialUDP(b, address)
	_ = c.SetDeadline(time.Time{})
	buf := make([]byte, 200)
	round := func() {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
	round() // the session begins
	b.ReportAllocs()
	for b.Loop() {
		round()
	}
}

// BenchmarkWake tells how long after a server listens the first held byte
// reaches it.
func BenchmarkWake(b *testing.B) {
	var took []time.Duration
	for b.Loop() {
		r := newRig(b)
		c := dialTCP(b, r.serve("game", route.TCP))
		write(b, c, "x")
		r.queued(1)
		server := freeAddress(b, route.TCP)
		r.backend(server, true)
		<-time.After(50 * time.Millisecond) // it is dialled in vain meanwhile
		heard := make(chan time.Time, 1)
		ln, err := net.Listen("tcp", server)
		if err != nil {
			b.Fatal(err)
		}
		listening := time.Now()
		go func() {
			if c, err := ln.Accept(); err == nil {
				_, _ = c.Read(make([]byte, 1))
				heard <- time.Now()
				_ = c.Close()
			}
		}()
		took = append(took, (<-heard).Sub(listening))
		_ = ln.Close()
		_ = c.Close()
		r.server.Close()
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*9/10].Microseconds())/1000, "p90-ms")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkIdlePort tells what a port costs on which nothing has happened.
func BenchmarkIdlePort(b *testing.B) {
	for _, network := range []route.Network{route.TCP, route.UDP} {
		b.Run(string(network), func(b *testing.B) {
			const ports = 500
			for b.Loop() {
				b.StopTimer()
				r := newRig(b)
				before := memory()
				r.change(func(rt *route.Route) {
					// The kernel chooses the numbers.
					for i := range ports {
						rt.Ports = append(rt.Ports, route.Port{
							Name: fmt.Sprint(i), Network: network, Protocol: v1alpha1.Protocol(network),
						})
					}
				})
				after := memory()
				b.ReportMetric(float64(after-before)/ports, "bytes/port")
				r.server.Close()
				b.StartTimer()
			}
		})
	}
}

// memory is what the heap and the stacks take.
func memory() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
