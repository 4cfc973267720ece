package player

import (
	"bufio"
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"dormouse.dev/dormouse/test/gamewire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answers are the replies, in their order, that a bad server gives to three
// messages.
type answers func(messages [3]gamewire.Message) []gamewire.Reply

func replyTo(m gamewire.Message) gamewire.Reply {
	return gamewire.Reply{Number: m.Number, Payload: m.Payload, Server: "game-0", Peer: "10.0.0.1:1"}
}

func TestFaultsAreCounted(t *testing.T) {
	for name, test := range map[string]struct {
		answers answers
		want    Stats
		wantErr string
	}{
		"lost": {
			answers: func(m [3]gamewire.Message) []gamewire.Reply {
				return []gamewire.Reply{replyTo(m[0]), replyTo(m[2])}
			},
			want:    Stats{Received: 2, Lost: 1},
			wantErr: "1 of 3 messages without a reply",
		},
		"out of order": {
			answers: func(m [3]gamewire.Message) []gamewire.Reply {
				return []gamewire.Reply{replyTo(m[0]), replyTo(m[2]), replyTo(m[1])}
			},
			want:    Stats{Received: 3, Reordered: 1},
			wantErr: "1 replies out of order",
		},
		"twice": {
			answers: func(m [3]gamewire.Message) []gamewire.Reply {
				return []gamewire.Reply{replyTo(m[0]), replyTo(m[1]), replyTo(m[1]), replyTo(m[2])}
			},
			want:    Stats{Received: 4, Duplicated: 1},
			wantErr: "1 replies more than once",
		},
		"changed, and never asked for": {
			answers: func(m [3]gamewire.Message) []gamewire.Reply {
				changed := replyTo(m[1])
				changed.Payload = "other"
				return []gamewire.Reply{replyTo(m[0]), changed, {Number: 9}, replyTo(m[2])}
			},
			want:    Stats{Received: 4, Corrupt: 2, Lost: 1},
			wantErr: "2 replies corrupt",
		},
		"another server": {
			answers: func(m [3]gamewire.Message) []gamewire.Reply {
				moved := replyTo(m[2])
				moved.Server = "game-1"
				return []gamewire.Reply{replyTo(m[0]), replyTo(m[1]), moved}
			},
			want:    Stats{Received: 3},
			wantErr: "session was moved",
		},
		"fewer bytes than were sent": {
			answers: func(m [3]gamewire.Message) []gamewire.Reply {
				return []gamewire.Reply{replyTo(m[0]), replyTo(m[1]), replyTo(m[2])}
			},
			want:    Stats{Received: 3},
			wantErr: "the server received 0 bytes of",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := playAgainst(t, test.answers)
			stats := p.Stats()
			got := Stats{
				Received: stats.Received, Lost: stats.Lost, Reordered: stats.Reordered,
				Duplicated: stats.Duplicated, Corrupt: stats.Corrupt,
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(Stats{})); diff != "" {
				t.Errorf("stats (-want +got):\n%s", diff)
			}
			if err := stats.Intact(); err == nil || !strings.Contains(err.Error(), test.wantErr) {
				t.Errorf("intact = %v, want %q", err, test.wantErr)
			}
		})
	}
}

// playAgainst sends three messages to a bad server over TCP and returns when
// the server has closed the session.
func playAgainst(t *testing.T, answer answers) *Player {
	t.Helper()
	listener := listen(t)
	p, err := DialTCP(t.Context(), listener.Addr().String(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	for range 3 {
		if _, err := p.Send(); err != nil {
			t.Fatal(err)
		}
	}
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var messages [3]gamewire.Message
	in := bufio.NewScanner(conn)
	for i := range messages {
		in.Scan()
		if messages[i], err = gamewire.ParseMessage(in.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	for _, reply := range answer(messages) {
		encoded, err := gamewire.AppendReply(nil, reply)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write(append(encoded, '\n')); err != nil {
			t.Fatal(err)
		}
	}
	_ = conn.Close()
	<-p.Done()
	return p
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

func TestAResetIsToldFromAnEnd(t *testing.T) {
	for name, test := range map[string]struct {
		reset      bool
		wantResets uint64
		wantEnds   uint64
	}{
		"reset": {reset: true, wantResets: 1},
		"end":   {wantEnds: 1},
	} {
		t.Run(name, func(t *testing.T) {
			listener := listen(t)
			p, err := DialTCP(t.Context(), listener.Addr().String(), Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			conn, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if test.reset {
				// With no time to linger, a close is a reset.
				if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
					t.Fatal(err)
				}
			}
			_ = conn.Close()
			<-p.Done()
			if stats := p.Stats(); stats.Resets != test.wantResets || stats.Ends != test.wantEnds {
				t.Errorf("resets %d, ends %d; want %d, %d", stats.Resets, stats.Ends, test.wantResets, test.wantEnds)
			}
			if _, err := p.Exchange(t.Context()); err == nil {
				t.Error("a session that has ended takes messages")
			}
		})
	}
}

func TestAnUnansweredDatagramIsLostAndTheSessionGoesOn(t *testing.T) {
	socket, err := new(net.ListenConfig).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := socket.LocalAddr().String()
	p, err := DialUDP(t.Context(), address, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	// Nobody listens: ICMP says so.
	_ = socket.Close()
	if _, err := p.Send(); err != nil {
		t.Fatal(err)
	}
	waitUntilRefused(t, p)
	if socket, err = new(net.ListenConfig).ListenPacket(t.Context(), "udp", address); err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	go func() {
		buffer := make([]byte, gamewire.MaxMessage)
		n, peer, err := socket.ReadFrom(buffer)
		if err != nil {
			return
		}
		message, err := gamewire.ParseMessage(buffer[:n])
		if err != nil {
			return
		}
		reply, err := gamewire.AppendReply(nil, replyTo(message))
		if err != nil {
			return
		}
		_, _ = socket.WriteTo(reply, peer)
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	reply, err := p.Exchange(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if stats := p.Stats(); reply.Number != 2 || stats.Lost != 1 || stats.Err != nil {
		t.Errorf("reply %d, lost %d, error %v; want 2, 1, none", reply.Number, stats.Lost, stats.Err)
	}
}

func waitUntilRefused(t *testing.T, p *Player) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		p.mu.Lock()
		refused, changed := p.stats.Refused, p.changed
		p.mu.Unlock()
		if refused > 0 {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatal("no ICMP answer came")
		}
	}
}

func TestTheSocketIsOpenedByTheGivenFunction(t *testing.T) {
	here, there := net.Pipe()
	defer there.Close()
	var asked string
	p, err := DialUDP(t.Context(), "10.96.0.1:7000", Options{Dial: func(_ context.Context, network, address string) (net.Conn, error) {
		asked = network + " " + address
		return here, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if asked != "udp 10.96.0.1:7000" {
		t.Errorf("asked for %q", asked)
	}
}

func TestEchoNoticesMissingBytes(t *testing.T) {
	listener := listen(t)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		buffer := make([]byte, 1000)
		for n := 0; n < 1000; {
			m, err := conn.Read(buffer[n:])
			if err != nil {
				return
			}
			n += m
		}
		_, _ = conn.Write(buffer[:900])
	}()
	err := Echo(t.Context(), nil, listener.Addr().String(), 1000)
	if err == nil || !strings.Contains(err.Error(), "900 of 1000 bytes came back") {
		t.Errorf("error = %v, want 900 of 1000 bytes", err)
	}
}
