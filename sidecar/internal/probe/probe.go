// Package probe asks a game how many play, in the query protocol that its clients use for their
// server lists, so that the game needs no code for Dormouse. It owns the sockets of its
// queries, one each, which end with the query. The formats are in internal/gameproto, and the
// caller decides when to ask.
//
// The game is not trusted: it may hang, be half started or hostile, and a query costs a bounded
// time and memory whatever it answers.
package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// Kind is a protocol's name in the API.
type Kind string

// Kinds.
const (
	Minecraft Kind = "minecraft"
	Bedrock   Kind = "bedrock"
	Source    Kind = "source"
	Quake3    Kind = "quake3"
)

const (
	// longest bounds a query whose context doesn't end it sooner.
	longest = 10 * time.Second
	// maxText bounds a status' texts, in bytes.
	maxText = 256
)

// Status is a game's answer.
type Status struct {
	// Players is how many people play. Bots are left out where the protocol distinguishes them,
	// because they would keep the game awake for nobody. Otherwise all count as people, because
	// a game must not sleep while people play.
	Players int
	// Capacity is how many may play.
	Capacity int
	// Version and Name are as the game sent them: valid UTF-8 without control characters, 256
	// bytes at most, and perhaps empty.
	Version, Name string
}

// uncountedError is an error of a query that the game has answered.
type uncountedError struct{ error }

func (e *uncountedError) Unwrap() error { return e.error }

// uncounted marks an error of a query that the game has answered; nil stays nil.
func uncounted(err error) error {
	if err == nil {
		return nil
	}
	return &uncountedError{err}
}

// Answered reports whether the game has answered a query that failed: it is there, and its answer can't be
// read or doesn't say how many play.
func Answered(err error) bool {
	var e *uncountedError
	return errors.As(err, &e)
}

// Prober asks one game.
type Prober interface {
	// Query asks once. It returns when the game answered, when no answer can come any more
	// (nothing listens, or the answer is invalid), and at the latest when ctx ends or after 10
	// s, with an error that wraps the context's. After any error it is unknown how many play;
	// [Answered] tells whether the game has said anything.
	// It may be called concurrently, but not often: games protect themselves against floods of
	// queries. ioquake3 answers an address ten times and then once a second, and where bots
	// play a query needs two answers.
	Query(ctx context.Context) (Status, error)
}

// New is the prober of the game at an address, a host and a port. A kind that
// isn't one of the constants and an address that can't be dialled are errors.
func New(kind Kind, address string) (Prober, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("read the game's address: %w", err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 || host == "" {
		return nil, fmt.Errorf("read the game's address: %q is no host and port", address)
	}
	p := &prober{kind: kind, address: address}
	switch kind {
	case Minecraft:
		p.network, p.ask = "tcp", askMinecraft(uint16(port))
	case Bedrock:
		p.network, p.ask = "udp", askBedrock
	case Source:
		p.network, p.ask = "udp", new(sourceServer).ask
	case Quake3:
		p.network, p.ask = "udp", askQuake3
	default:
		return nil, fmt.Errorf("find the protocol of the game at %s: there is none that is called %q", address, kind)
	}
	return p, nil
}

// prober opens a socket, and leaves the exchange to ask.
type prober struct {
	kind    Kind
	network string
	address string
	ask     func(net.Conn) (Status, error)
}

// Query implements [Prober].
func (p *prober) Query(ctx context.Context) (Status, error) {
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	s, err := p.query(ctx)
	if err == nil {
		return Status{
			Players: s.Players, Capacity: s.Capacity,
			Version: clean(s.Version), Name: clean(s.Name),
		}, nil
	}
	// A deadline that interrupted a read looks like a failure of the network.
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return Status{}, fmt.Errorf("query the game at %s (%s): %w", p.address, p.kind, err)
}

func (p *prober) query(ctx context.Context) (Status, error) {
	conn, err := new(net.Dialer).DialContext(ctx, p.network, p.address)
	if err != nil {
		return Status{}, err
	}
	defer conn.Close()
	// A time long past interrupts all reads and writes of the socket.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	return p.ask(conn)
}

// clean makes a game's text fit for logs and for the API.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || unicode.IsControl(r) {
			return -1
		}
		return r
	}, s)
	return strings.ToValidUTF8(s[:min(len(s), maxText)], "")
}
