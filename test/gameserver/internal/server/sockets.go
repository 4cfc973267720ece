package server

import (
	"context"
	"errors"
	"fmt"
	"net"
)

// sockets are the open game ports.
type sockets struct {
	tcp, echoTCP []net.Listener
	udp, echoUDP []net.PacketConn
}

// openSockets opens every game port or none.
func openSockets(ctx context.Context, o Options) (*sockets, error) {
	var (
		all    sockets
		config net.ListenConfig
	)
	for _, list := range []struct {
		addresses []string
		to        *[]net.Listener
	}{{o.TCP, &all.tcp}, {o.EchoTCP, &all.echoTCP}} {
		for _, address := range list.addresses {
			listener, err := config.Listen(ctx, "tcp", address)
			if err != nil {
				all.close()
				return nil, fmt.Errorf("open game port: %w", err)
			}
			*list.to = append(*list.to, listener)
		}
	}
	for _, list := range []struct {
		addresses []string
		to        *[]net.PacketConn
	}{{o.UDP, &all.udp}, {o.EchoUDP, &all.echoUDP}} {
		for _, address := range list.addresses {
			conn, err := config.ListenPacket(ctx, "udp", address)
			if err != nil {
				all.close()
				return nil, fmt.Errorf("open game port: %w", err)
			}
			// As a game server should whose players all send at once.
			if udp, ok := conn.(*net.UDPConn); ok {
				_ = udp.SetReadBuffer(receiveBytes)
			}
			*list.to = append(*list.to, conn)
		}
	}
	return &all, nil
}

// receiveBytes is how much may wait for a UDP socket to be read, as far as the
// node allows it: some seconds of what the tests' players send, for a node may
// be too busy to run the game for as long.
const receiveBytes = 4 << 20

// closeListeners refuses new TCP sessions. UDP has no such thing: its sessions
// share the socket.
func (s *sockets) closeListeners() {
	for _, listener := range append(s.tcp[:len(s.tcp):len(s.tcp)], s.echoTCP...) {
		_ = listener.Close()
	}
}

func (s *sockets) close() {
	s.closeListeners()
	for _, conn := range append(s.udp[:len(s.udp):len(s.udp)], s.echoUDP...) {
		_ = conn.Close()
	}
}

func (s *Server) serveSockets(sockets *sockets) {
	for _, listener := range sockets.tcp {
		s.addrs.TCP = append(s.addrs.TCP, listener.Addr().String())
		s.loops.Go(func() { s.accept(listener, s.answerLines) })
	}
	for _, listener := range sockets.echoTCP {
		s.addrs.EchoTCP = append(s.addrs.EchoTCP, listener.Addr().String())
		s.loops.Go(func() { s.accept(listener, s.echoBytes) })
	}
	for _, conn := range sockets.udp {
		s.addrs.UDP = append(s.addrs.UDP, conn.LocalAddr().String())
		s.loops.Go(func() { s.serveDatagrams(conn, s.answerDatagram) })
	}
	for _, conn := range sockets.echoUDP {
		s.addrs.EchoUDP = append(s.addrs.EchoUDP, conn.LocalAddr().String())
		s.loops.Go(func() { s.serveDatagrams(conn, s.echoDatagram) })
	}
}

// accept gives each connection to handle, until the listener is closed.
func (s *Server) accept(listener net.Listener, handle func(net.Conn)) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // The connection died before it was accepted.
		}
		s.counters.tcpAccepted.Add(1)
		s.counters.tcpOpen.Add(1)
		s.loops.Go(func() {
			defer s.counters.tcpOpen.Add(-1)
			defer conn.Close()
			defer context.AfterFunc(s.sessions, func() { _ = conn.Close() })()
			handle(conn)
		})
	}
}
