package e2e

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env/minetest"
)

// A real game from Debian, which knows nothing of Dormouse, is woken by the
// first datagram of its own protocol. The client sends each datagram once: one
// that got lost on the way would never be answered.
func TestMinetestWakesForItsOwnClient(t *testing.T) {
	t.Parallel()
	setup, cancel := context.WithTimeout(t.Context(), suite.TestTimeout)
	defer cancel()
	game, err := minetest.Image(setup, suite.Cluster, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	for name, address := range paths {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, ns := suite.Namespace(t)
			g := game
			g.Namespace, g.Type = ns, corev1.ServiceTypeNodePort
			suite.Asleep(ctx, t, g)
			conn, err := suite.Cluster.DialPlayer(ctx, "udp", address(ctx, t, g, g.UDP[0]))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			play, cancel := context.WithTimeout(ctx, suite.PlayTimeout)
			defer cancel()
			session := minetestSession{conn: conn, seq: 0xffdc}
			if err := session.join(play); err != nil {
				t.Fatal(err)
			}
			for i := range 20 {
				if err := session.ping(play); err != nil {
					t.Fatalf("ping %d: %v", i, err)
				}
			}
			if _, err := suite.Cluster.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAwake, v1alpha1.ModeServe); err != nil {
				t.Fatal(err)
			}
			for i := range 20 {
				if err := session.ping(play); err != nil {
					t.Fatalf("ping %d after the handover: %v", i, err)
				}
			}
			suite.OneServer(ctx, t, ns)
		})
	}
}

// minetestSession is a client's connection, as far as it goes without logging in:
// every reliable datagram is acknowledged by its number.
type minetestSession struct {
	conn net.Conn
	peer uint16
	seq  uint16
}

// Parts of a datagram.
const (
	minetestProtocol  = 0x4f457403
	minetestControl   = 0
	minetestOriginal  = 1
	minetestReliable  = 3
	minetestAck       = 0
	minetestSetPeerID = 1
	minetestPing      = 2
)

// header is what each datagram begins with.
func (m *minetestSession) header() []byte {
	b := binary.BigEndian.AppendUint32(nil, minetestProtocol)
	b = binary.BigEndian.AppendUint16(b, m.peer)
	return append(b, 0)
}

// reliable sends a datagram that the server must acknowledge.
func (m *minetestSession) reliable(body ...byte) error {
	b := append(m.header(), minetestReliable)
	b = binary.BigEndian.AppendUint16(b, m.seq)
	_, err := m.conn.Write(append(b, body...))
	return err
}

// join sends the first datagram and takes the number that the server gives the
// client.
func (m *minetestSession) join(ctx context.Context) error {
	if err := m.reliable(minetestOriginal); err != nil {
		return err
	}
	acked := false
	for m.peer == 0 || !acked {
		body, err := m.receive(ctx)
		if err != nil {
			return fmt.Errorf("join: acknowledged %v, number %d: %w", acked, m.peer, err)
		}
		switch {
		case bytes.Equal(body, m.acknowledged()):
			acked = true
		case len(body) >= 7 && body[0] == minetestReliable && body[3] == minetestControl && body[4] == minetestSetPeerID:
			m.peer = binary.BigEndian.Uint16(body[5:])
			ack := append(m.header(), minetestControl, minetestAck)
			if _, err := m.conn.Write(append(ack, body[1], body[2])); err != nil {
				return err
			}
		}
	}
	return nil
}

// ping is one reliable datagram and its acknowledgement.
func (m *minetestSession) ping(ctx context.Context) error {
	m.seq++
	if err := m.reliable(minetestControl, minetestPing); err != nil {
		return err
	}
	for {
		body, err := m.receive(ctx)
		if err != nil {
			return err
		}
		if bytes.Equal(body, m.acknowledged()) {
			return nil
		}
	}
}

func (m *minetestSession) acknowledged() []byte {
	return binary.BigEndian.AppendUint16([]byte{minetestControl, minetestAck}, m.seq)
}

// receive gives a datagram without its header.
func (m *minetestSession) receive(ctx context.Context) ([]byte, error) {
	deadline, _ := ctx.Deadline()
	if err := m.conn.SetReadDeadline(deadline); err != nil {
		return nil, err
	}
	buf := make([]byte, 2048)
	n, err := m.conn.Read(buf)
	if err != nil {
		return nil, fmt.Errorf("wait for the server: %w", err)
	}
	if n < 7 || binary.BigEndian.Uint32(buf) != minetestProtocol {
		return nil, fmt.Errorf("the server sent %x at %s, which is not of its protocol", buf[:n], time.Now())
	}
	return buf[7:n], nil
}
