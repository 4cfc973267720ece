package probing

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/utils/clock"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/sidecar/internal/game"
	"dormouse.dev/dormouse/sidecar/internal/probe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const within = 10 * time.Second

// question is a query that the test answers.
type question struct {
	players  chan int // negative: no answer
	deadline time.Time
}

// prober hands its queries to the test, and sees that there is one at a time.
type prober struct {
	t         *testing.T
	questions chan question
	asking    atomic.Int32
}

func (p *prober) Query(ctx context.Context) (probe.Status, error) {
	if p.asking.Add(1) != 1 {
		p.t.Error("two queries at once")
	}
	defer p.asking.Add(-1)
	q := question{players: make(chan int, 1)}
	q.deadline, _ = ctx.Deadline()
	select {
	case p.questions <- q:
	case <-ctx.Done():
		return probe.Status{}, ctx.Err()
	}
	select {
	case n := <-q.players:
		if n < 0 {
			return probe.Status{}, errors.New("no answer")
		}
		return probe.Status{Players: n, Capacity: 8}, nil
	case <-ctx.Done():
		return probe.Status{}, ctx.Err()
	}
}

func (p *prober) next() question {
	p.t.Helper()
	select {
	case q := <-p.questions:
		return q
	case <-time.After(within):
		p.t.Fatal("the game isn't asked")
		return question{}
	}
}

func start(t *testing.T) (*prober, *game.Game) {
	// So long that no probe comes by its period.
	const period = time.Hour
	g := game.New(game.Config{
		Readiness: v1alpha1.ServerReadinessAuto, Probed: true, Health: game.Health{Period: period, FailureThreshold: 3},
	}, clock.RealClock{})
	p := &prober{t: t, questions: make(chan question)}
	loop := &Loop{Prober: p, Game: g, Period: period, Log: logr.Discard()}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- loop.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p, g
}

func eventually(t *testing.T, g *game.Game, holds func(game.Snapshot) bool) {
	t.Helper()
	for deadline := time.After(within); ; {
		snapshot, changed := g.Watch()
		if holds(snapshot) {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("never in %+v", snapshot)
		}
	}
}

func TestAGameThatBootsIsAskedOften(t *testing.T) {
	p, g := start(t)
	for range 3 {
		q := p.next()
		if left := time.Until(q.deadline); left > bootWait {
			t.Errorf("a game that boots is waited for %s", left)
		}
		q.players <- -1
	}
	p.next().players <- 2
	eventually(t, g, func(s game.Snapshot) bool { return s.Game.State == v1alpha1.GameReady })
	if got := g.Snapshot().Game.Players; got.Current != 2 || got.Capacity != 8 {
		t.Errorf("players %+v", got)
	}
	// From now on there is an hour between two.
	select {
	case <-p.questions:
		t.Error("asked again")
	case <-time.After(2 * retry):
	}
}

// A player who waits for the game waits for a probe, too: for a small part of its boot.
func TestHowOftenAGameThatBootsIsAsked(t *testing.T) {
	t.Parallel()
	for booted, want := range map[time.Duration]time.Duration{
		0: 20 * time.Millisecond, 8 * time.Second: 20 * time.Millisecond, 40 * time.Second: 100 * time.Millisecond, time.Hour: 250 * time.Millisecond,
	} {
		if got := whileBooting(booted); got != want {
			t.Errorf("a game that has booted for %s is asked each %s, want %s", booted, got, want)
		}
	}
}

func TestWhatTheOperatorTellsIsAskedForAtOnce(t *testing.T) {
	p, g := start(t)
	p.next().players <- 2
	tell := reportapi.Answer{Version: "1"}
	for _, change := range []func(){func() { tell.Drain = true }, func() { tell.Shutdown = true }} {
		change()
		g.TakeAnswer(tell)
		p.next().players <- 1
	}
	eventually(t, g, func(s game.Snapshot) bool { return s.ShutdownSeen })
	// Told again during a query, it is asked again after it.
	again := func() {
		for _, shutdown := range []bool{false, true} {
			tell.Shutdown = shutdown
			g.TakeAnswer(tell)
		}
	}
	again()
	q := p.next()
	again()
	q.players <- 0
	p.next().players <- 3
	eventually(t, g, func(s game.Snapshot) bool { return s.ShutdownSeen })
	if got := g.Snapshot(); got.DeletionAllowed {
		t.Error("deletable with 3 players")
	}
}

// TestAShutdownIsAskedForUntilTheGameAnswers has probes fail that would rest on an
// answer from before.
func TestAShutdownIsAskedForUntilTheGameAnswers(t *testing.T) {
	p, g := start(t)
	p.next().players <- 0
	eventually(t, g, func(s game.Snapshot) bool { return s.Answered })
	g.TakeAnswer(reportapi.Answer{Version: "1", Shutdown: true})
	began := time.Now()
	const lost = 4
	for range lost {
		p.next().players <- -1
	}
	q := p.next()
	if took := time.Since(began); took < (lost-1)*retry {
		t.Errorf("asked %d times within %s", lost+1, took)
	}
	if g.Snapshot().ShutdownSeen {
		t.Error("a probe that failed was taken for an answer")
	}
	q.players <- 1
	eventually(t, g, func(s game.Snapshot) bool { return s.ShutdownSeen && !s.DeletionAllowed })
}

func TestANewProcessIsAskedOften(t *testing.T) {
	p, g := start(t)
	began := time.Now().Add(-time.Hour)
	g.TakeAnswer(reportapi.Answer{Version: "1", GameStarted: &began})
	p.next().players <- 0
	eventually(t, g, func(s game.Snapshot) bool { return s.Answered })
	later := time.Now().Add(time.Hour)
	g.TakeAnswer(reportapi.Answer{Version: "2", GameStarted: &later})
	p.next().players <- -1
	p.next().players <- 0
}

func TestALookIsProbedForAtOnce(t *testing.T) {
	p, g := start(t)
	p.next().players <- 0
	for _, word := range []string{"one", "two"} {
		g.TakeAnswer(reportapi.Answer{Version: word, Look: word})
		q := p.next()
		if word == "two" {
			// One that comes during a probe is probed for after it.
			word = "three"
			g.TakeAnswer(reportapi.Answer{Version: word, Look: word})
			q.players <- 0
			q = p.next()
		}
		q.players <- 1
		eventually(t, g, func(s game.Snapshot) bool { return s.Looked == word && s.Game.Players.Current == 1 })
	}
	g.TakeAnswer(reportapi.Answer{Version: "4"})
	select {
	case <-p.questions:
		t.Error("the game is asked though nobody looks any more")
	case <-time.After(2 * retry):
	}
}

// noisy is a game that answers, and nothing that can be read.
func noisy(t *testing.T) probe.Prober {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for buffer := make([]byte, 1024); ; {
			_, from, err := conn.ReadFromUDPAddrPort(buffer)
			if err != nil {
				return
			}
			_, _ = conn.WriteToUDPAddrPort([]byte("\x1cnoise"), from)
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-done
	})
	p, err := probe.New(probe.Bedrock, conn.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// counting answers once that nobody plays, and then as another prober does.
type counting struct {
	probe.Prober

	asked atomic.Int32
}

func (c *counting) Query(ctx context.Context) (probe.Status, error) {
	if c.asked.Add(1) == 1 {
		return probe.Status{Capacity: 8}, nil
	}
	return c.Prober.Query(ctx)
}

// A game whose answers tell no count any more isn't silent: nobody may be sent away from it, nor be cut off.
func TestAnAnswerWithoutACountIsNoSilence(t *testing.T) {
	g := game.New(game.Config{
		Readiness: v1alpha1.ServerReadinessAuto, Probed: true, Health: game.Health{Period: 10 * time.Millisecond, FailureThreshold: 1},
	}, clock.RealClock{})
	loop := &Loop{Prober: &counting{Prober: noisy(t)}, Game: g, Period: 10 * time.Millisecond, Log: logr.Discard()}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- loop.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	eventually(t, g, func(s game.Snapshot) bool {
		return s.Answered && s.Game.State == v1alpha1.GameReady && !s.DeletionAllowed
	})
}

// The end of a game that hides its players is ordered: its answer won't change within a period.
func TestAGameThatHidesItsPlayersIsNotAskedAllTheTime(t *testing.T) {
	g := game.New(game.Config{
		Readiness: v1alpha1.ServerReadinessAuto, Probed: true, Health: game.Health{Period: time.Hour, FailureThreshold: 3},
	}, clock.RealClock{})
	prober := &counting{Prober: noisy(t)}
	loop := &Loop{Prober: prober, Game: g, Period: time.Hour, Log: logr.Discard()}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- loop.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	eventually(t, g, func(s game.Snapshot) bool { return s.Answered })
	g.TakeAnswer(reportapi.Answer{Version: "1", Shutdown: true})
	eventually(t, g, func(s game.Snapshot) bool { return s.Hidden })
	before := prober.asked.Load()
	<-time.After(3 * retry)
	if again := prober.asked.Load() - before; again > 0 {
		t.Errorf("it was asked %d more times", again)
	}
}
