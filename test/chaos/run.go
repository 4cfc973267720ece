package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/chaos/memory"
	"dormouse.dev/dormouse/test/chaos/schedule"
	"dormouse.dev/dormouse/test/env"
)

const (
	progressInterval = 10 * time.Second
	setUpWithin      = 2 * time.Minute
	cleanUpWithin    = time.Minute
)

// Options say what a run does.
type Options struct {
	Seed     uint64
	Duration time.Duration
	// Kinds are the faults' kinds; nil is all of them.
	Kinds []schedule.Kind
	// Progress is where lines for a person to read go.
	Progress io.Writer
}

// run is a run under way.
type run struct {
	env       *env.Env
	plan      schedule.Plan
	command   string
	namespace string
	games     []env.Game
	hosts     []string
	// elder is the resolver that lives through the whole run.
	elder string

	started time.Time
	ports   ports
	flows   *flows
	phases  *phases
	memory  memory.Watcher
	ledger  ledger
	skipped int
	// missing is what the cluster still lacks after a fault.
	missing atomic.Pointer[error]

	mu     sync.Mutex
	out    io.Writer
	events []*event
}

// Run carries out a plan on the local cluster. It gives a report of all that
// happened even with an error, which says that the run itself did not work:
// what Dormouse did wrong is in the report.
func Run(ctx context.Context, e *env.Env, o Options) (_ *Report, err error) {
	r := &run{env: e, out: o.Progress, command: fmt.Sprintf("make chaos DURATION=%s SEED=%d", o.Duration, o.Seed)}
	if o.Kinds != nil {
		r.command += fmt.Sprintf(" CHAOS_FLAGS=--faults=%s", schedule.Join(o.Kinds))
	} else {
		o.Kinds = schedule.Kinds()
	}
	r.games = schedule.Games("")
	if r.plan, err = schedule.NewPlan(o.Seed, o.Duration, o.Kinds, r.games); err != nil {
		return nil, err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "chaos-"}}
	if err := e.Client.Create(ctx, ns); err != nil {
		return nil, fmt.Errorf("create a namespace: %w", err)
	}
	r.namespace, r.games = ns.Name, schedule.Games(ns.Name)
	defer func() {
		cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpWithin)
		defer cancel()
		err = errors.Join(err, e.Client.Delete(cleaning, ns))
	}()
	if err := r.setUp(ctx); err != nil {
		return nil, err
	}

	// Those who watch see what is left when everybody has gone, too.
	watching, stop := context.WithCancel(ctx)
	var watchers sync.WaitGroup
	defer watchers.Wait()
	defer stop()
	if r.flows, err = follow(watching, e.Cluster); err != nil {
		return nil, err
	}
	r.started = time.Now()
	r.ports.begin(r.started)
	r.phases = newPhases(r.games)
	watchers.Go(func() { r.phases.watch(watching, e, r.namespace) })
	watchers.Go(func() { r.memory.Watch(watching, e) })
	watchers.Go(func() { r.progress(watching) })

	r.play(ctx)
	played := time.Since(r.started)
	report := newReport(r, played)
	if ctx.Err() != nil {
		return report, fmt.Errorf("play: %w", context.Cause(ctx))
	}
	if err := r.flows.failure(); err != nil {
		return report, err
	}
	r.rest(ctx, report)
	report.finish(r)
	if report.Failed() {
		text, err := e.Describe(ctx, r.namespace)
		if err != nil {
			text += err.Error()
		}
		report.Describe = text
	}
	return report, nil
}

// setUp makes the games and waits until they all sleep.
func (r *run) setUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, setUpWithin)
	defer cancel()
	for _, g := range r.games {
		if err := r.env.Create(ctx, g); err != nil {
			return err
		}
		port := append(g.TCP[:len(g.TCP):len(g.TCP)], g.UDP...)[0]
		address, err := r.env.ClusterIP(ctx, g.Key(), port, corev1.IPv4Protocol)
		if err != nil {
			return err
		}
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return fmt.Errorf("address of %s: %w", g.Key(), err)
		}
		r.hosts = append(r.hosts, host)
	}
	for _, g := range r.games {
		if err := r.asleep(ctx, g); err != nil {
			return err
		}
	}
	if err := r.waitWhole(ctx); err != nil {
		return err
	}
	pods, err := r.pods(ctx, env.Resolver)
	if err != nil {
		return err
	}
	r.elder = pods[0].Name
	return nil
}

// asleep waits until a game sleeps and new players are sent to the resolver.
func (r *run) asleep(ctx context.Context, g env.Game) error {
	es, err := r.env.WaitPhase(ctx, g.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy)
	if err != nil {
		return err
	}
	return r.env.WaitRouted(ctx, es, 1)
}

func (r *run) address(v schedule.Session) string {
	return net.JoinHostPort(r.hosts[v.Game], strconv.Itoa(int(v.Port)))
}

// play lets players come while faults happen, and returns when the last player
// has left.
func (r *run) play(ctx context.Context) {
	var players sync.WaitGroup
	defer players.Wait()
	joining, stop := context.WithCancel(ctx)
	players.Go(func() {
		for i, v := range r.plan.Sessions {
			wait(joining, time.Until(r.started.Add(v.At)))
			if joining.Err() != nil {
				return
			}
			if open, _, _, _ := r.ledger.counts(); open >= schedule.MaxPlayers {
				r.skipped++
				continue
			}
			r.ledger.begin()
			players.Go(func() { r.playSession(ctx, v, i) })
		}
	})
	for i, f := range r.plan.Faults {
		wait(ctx, time.Until(r.started.Add(f.At)))
		if ctx.Err() != nil {
			break
		}
		e := &event{Fault: f, number: i + 1}
		r.mu.Lock()
		r.events = append(r.events, e)
		r.mu.Unlock()
		if err := r.inject(ctx, e); err != nil {
			r.printf("fault %d failed: %v", e.number, err)
			continue
		}
		r.say(e, fmt.Sprintf("whole again after %s", e.whole.Sub(e.began).Round(100*time.Millisecond)))
	}
	wait(ctx, max(schedule.Lead, time.Until(r.started.Add(r.plan.Duration))))
	stop()
}

// say prints a fault's line.
func (r *run) say(e *event, then string) {
	if then == "" {
		then = "begins"
		if e.Length > 0 {
			then += fmt.Sprintf(", for %s", e.Length)
		}
	}
	r.printf("fault %d of %d: %s of %s %s", e.number, len(r.plan.Faults), e.Kind, e.target, then)
}

// progress prints a line each ten seconds.
func (r *run) progress(ctx context.Context) {
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		open, over, hurt, messages := r.ledger.counts()
		wakes, sleeps, asleep := r.phases.counts()
		waiting := ""
		if err := r.missing.Load(); err != nil && *err != nil {
			waiting = "; " + (*err).Error()
		}
		r.printf("%d playing, %d have played (%d lost something), %d replies; %d wakes, %d sleeps, %d of %d services asleep%s",
			open, over, hurt, messages, wakes, sleeps, asleep, len(r.games), waiting)
	}
}

func (r *run) printf(format string, values ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := time.Duration(0)
	if !r.started.IsZero() {
		at = time.Since(r.started)
	}
	fmt.Fprintf(r.out, "%7.1fs  %s\n", at.Seconds(), strings.TrimRight(fmt.Sprintf(format, values...), "\n"))
}
