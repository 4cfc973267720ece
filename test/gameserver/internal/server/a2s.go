package server

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"
)

// serveA2S answers Source's A2S_INFO query with the number of players, to those
// who show that they get what is sent to them.
func (s *Server) serveA2S(ctx context.Context, address string) error {
	conn, err := new(net.ListenConfig).ListenPacket(ctx, "udp", address)
	if err != nil {
		return fmt.Errorf("open the query port: %w", err)
	}
	challenge := make([]byte, 4)
	if _, err := rand.Read(challenge); err != nil {
		return fmt.Errorf("make a challenge: %w", err)
	}
	s.loops.Go(func() {
		<-s.sessions.Done()
		_ = conn.Close()
	})
	s.loops.Go(func() {
		buffer := make([]byte, 2048)
		for {
			n, peer, err := conn.ReadFrom(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if answer := s.answerA2S(buffer[:n], challenge); err == nil && answer != nil {
				_, _ = conn.WriteTo(answer, peer)
			}
		}
	})
	return nil
}

func (s *Server) answerA2S(query, challenge []byte) []byte {
	const start = "\xff\xff\xff\xff"
	rest, ok := bytes.CutPrefix(query, []byte(start+"TSource Engine Query\x00"))
	if !ok || s.listening.Load() == 0 {
		return nil
	}
	if !bytes.Equal(rest, challenge) {
		return append([]byte(start+"A"), challenge...)
	}
	players := min(s.counters.players(time.Now()), 255)
	answer := []byte(start + "I\x11" + "Test server\x00map\x00test\x00Test\x00")
	answer = binary.LittleEndian.AppendUint16(answer, 0)
	// Players, the most there may be, bots; dedicated, Linux, open, not secured.
	answer = append(answer, byte(players), 32, 0, 'd', 'l', 0, 0)
	return append(answer, "1\x00\x00"...)
}
