package player

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"dormouse.dev/dormouse/test/gamewire"
)

// DialFunc opens a socket. The zero [net.Dialer]'s DialContext is one.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Options say how a player plays. The zero value is fit for use.
type Options struct {
	// Dial opens the player's socket; nil is an ordinary dialer.
	Dial DialFunc
	// PayloadSize is the length of each message's payload in bytes; 0 is 32.
	PayloadSize int
}

// Player is one session with a game server.
type Player struct {
	conn   net.Conn
	framer framer
	size   int
	done   chan struct{}

	send sync.Mutex // held from the choice of a number until it is sent

	mu      sync.Mutex
	stats   Stats
	pending map[uint64]*message
	changed chan struct{} // closed and replaced when stats or pending change
	closing bool
}

// message is one that was sent. Its reply is set, under mu, when it arrives.
type message struct {
	payload string
	sent    time.Time
	reply   *gamewire.Reply
}

// receiveBytes is how much may wait for a player to read it.
const receiveBytes = 4 << 20

// DialTCP opens a session over TCP. It sends nothing.
func DialTCP(ctx context.Context, address string, o Options) (*Player, error) {
	return dial(ctx, "tcp", address, o, &lines{})
}

// DialUDP opens a session over UDP: a socket of its own. It sends nothing.
func DialUDP(ctx context.Context, address string, o Options) (*Player, error) {
	return dial(ctx, "udp", address, o, &datagrams{})
}

func dial(ctx context.Context, network, address string, o Options, f framer) (*Player, error) {
	open := o.Dial
	if open == nil {
		open = new(net.Dialer).DialContext
	}
	started := time.Now()
	conn, err := open(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("connect to %s %s: %w", network, address, err)
	}
	if o.PayloadSize <= 0 {
		o.PayloadSize = 32
	}
	if udp, ok := conn.(*net.UDPConn); ok {
		// A player on a busy machine reads late, and what is lost for that was not
		// lost by what is tested.
		_ = udp.SetReadBuffer(receiveBytes)
	}
	f.attach(conn)
	p := &Player{
		conn: conn, framer: f, size: o.PayloadSize, done: make(chan struct{}),
		pending: make(map[uint64]*message), changed: make(chan struct{}),
	}
	p.stats.Dialed, p.stats.Connected = started, time.Now()
	go p.receive()
	return p, nil
}

// LocalAddr is the address that the player sends from.
func (p *Player) LocalAddr() net.Addr { return p.conn.LocalAddr() }

// Send sends the next message and returns its number. It doesn't wait for the
// reply.
func (p *Player) Send() (uint64, error) {
	number, _, err := p.sendNext()
	return number, err
}

func (p *Player) sendNext() (uint64, *message, error) {
	p.send.Lock()
	defer p.send.Unlock()
	payload := randomPayload(p.size)
	sent := time.Now()

	p.mu.Lock()
	number := p.stats.Sent + 1
	p.stats.Sent = number
	if p.stats.FirstSent.IsZero() {
		p.stats.FirstSent = sent
	}
	m := &message{payload: payload, sent: sent}
	p.pending[number] = m
	p.mu.Unlock()

	encoded := gamewire.AppendMessage(nil, gamewire.Message{Number: number, Payload: payload})
	n, err := p.framer.write(encoded)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil && p.framer.transient(err) {
		// It answers an earlier datagram, and this one was not sent.
		p.stats.Refused++
		n, err = p.framer.write(encoded)
	}
	p.stats.BytesSent += uint64(n)
	if err != nil {
		p.fail(err)
		return number, m, fmt.Errorf("send message %d: %w", number, err)
	}
	return number, m, nil
}

// Exchange sends a message and waits for its reply.
func (p *Player) Exchange(ctx context.Context) (gamewire.Reply, error) {
	number, m, err := p.sendNext()
	if err != nil {
		return gamewire.Reply{}, err
	}
	for {
		p.mu.Lock()
		reply, changed := m.reply, p.changed
		p.mu.Unlock()
		if reply != nil {
			return *reply, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return gamewire.Reply{}, fmt.Errorf("wait for reply %d: %w", number, context.Cause(ctx))
		case <-p.done:
			return gamewire.Reply{}, fmt.Errorf("wait for reply %d: %w", number, p.ended())
		}
	}
}

// Play sends a message each interval until the context ends, or the session
// does, which is an error.
func (p *Player) Play(ctx context.Context, interval time.Duration) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for ctx.Err() == nil {
		if _, err := p.Send(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-p.done:
			return fmt.Errorf("play: %w", p.ended())
		case <-ctx.Done():
		}
	}
	return nil
}

// Drain waits until every message has its reply, or the context ends, which is
// an error.
func (p *Player) Drain(ctx context.Context) error {
	for {
		p.mu.Lock()
		missing, changed := len(p.pending), p.changed
		p.mu.Unlock()
		if missing == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for %d replies: %w", missing, context.Cause(ctx))
		case <-p.done:
			return fmt.Errorf("wait for %d replies: %w", missing, p.ended())
		}
	}
}

// Done is closed when the session has ended, by whichever side.
func (p *Player) Done() <-chan struct{} { return p.done }

// Stats is what the player has counted so far.
func (p *Player) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	stats := p.stats.clone()
	stats.Lost = uint64(len(p.pending))
	return stats
}

// Close ends the session and returns once nothing of it runs any more.
func (p *Player) Close() error {
	p.mu.Lock()
	p.closing = true
	p.mu.Unlock()
	err := p.conn.Close()
	<-p.done
	if err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close session: %w", err)
	}
	return nil
}

// ended says why the session has ended.
func (p *Player) ended() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stats.Err != nil {
		return p.stats.Err
	}
	return net.ErrClosed
}

// notify wakes those who wait; the caller holds mu.
func (p *Player) notify() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func randomPayload(size int) string {
	var b strings.Builder
	for b.Len() < size {
		b.WriteString(rand.Text())
	}
	return b.String()[:size]
}
