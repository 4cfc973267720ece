package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	"dormouse.dev/dormouse/test/bench/process"
	"dormouse.dev/dormouse/test/bench/scale/audit"
	"dormouse.dev/dormouse/test/bench/scale/cluster"
)

// Phases, in the order in which they are.
const (
	phaseServices = "services"
	phaseUp       = "up"
	phaseHold     = "hold"
	phaseResolver = "resolver"
	phaseLeader   = "leader"
	phaseStorm    = "storm"
	phaseTriggers = "triggers"
	phaseRestarts = "restarts"
	phaseDown     = "down"
)

var allPhases = []string{phaseServices, phaseUp, phaseHold, phaseResolver, phaseLeader, phaseStorm, phaseTriggers, phaseRestarts, phaseDown}

// needServices are those for which services must be there.
var needServices = []string{phaseServices, phaseResolver, phaseStorm, phaseTriggers}

// run is one run of the benchmark.
type run struct {
	options
	cluster   *cluster.Cluster
	games     *games
	services  *services
	resolvers []*cluster.Resolver
	figures   figures
	// order is that of the phases in figures.
	order []string
}

func measureAll(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp("", "dormouse-bench-scale-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer func() {
		if err != nil && !errors.Is(err, context.Canceled) {
			say("what the programs said is in %s", dir)
			return
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}()
	r := &run{options: o, figures: figures{
		Servers: o.servers, Services: o.services, Processors: runtime.NumCPU(), OperatorMemory: o.memory, Phases: map[string]phaseFigures{}, Scrapes: map[string]scrape{},
	}}
	defer func() { err = errors.Join(err, r.stop()) }()
	if err := r.start(ctx, dir); err != nil {
		return err
	}
	for _, name := range allPhases {
		if !slices.Contains(r.phases, name) {
			continue
		}
		if err := r.do(ctx, name); err != nil {
			return err
		}
		// A run that is ended has those of the phases that it went through.
		r.figures.Restarts = r.cluster.Restarts
		r.figures.FailedCalls, _ = r.games.played.Failures()
		if err := r.figures.write(o.output); err != nil {
			return err
		}
	}
	r.figures.print(os.Stdout, r.order)
	fmt.Println("figures are in", o.output)
	return nil
}

// start starts all that there is before the first phase.
func (r *run) start(ctx context.Context, dir string) (err error) {
	if r.cluster, err = cluster.Start(ctx, cluster.Options{Dir: dir, OutboundNetworks: answersNetwork, OperatorMemory: r.memory, TokenLife: 2 * wholeRun, Say: say}); err != nil {
		return err
	}
	if err := r.cluster.MakeNamespace(ctx, gamesNamespace); err != nil {
		return err
	}
	if err := r.cluster.StartOperator(ctx); err != nil {
		return err
	}
	if r.games, err = follow(ctx, r.cluster, r.processes); err != nil {
		return err
	}
	if r.options.services > 0 {
		say("starting a resolver")
		first, err := r.cluster.StartResolver(ctx)
		if err != nil {
			return err
		}
		second, err := r.cluster.PassOn(ctx, cluster.ResolverName+"-1", first)
		if err != nil {
			return err
		}
		r.resolvers = []*cluster.Resolver{first, second}
		if r.services, err = followServices(ctx, r.cluster, r.options.services); err != nil {
			return err
		}
	}
	_, err = settle(ctx, r.cluster, audit.Requests{})
	return err
}

// stop ends what start has started.
func (r *run) stop() error {
	var errs []error
	if r.games != nil {
		errs = append(errs, r.games.played.Stop())
	}
	for _, one := range r.resolvers {
		errs = append(errs, one.Stop())
	}
	if r.cluster != nil {
		errs = append(errs, r.cluster.Stop())
	}
	return errors.Join(errs...)
}

// do does what a phase's name stands for.
func (r *run) do(ctx context.Context, name string) error {
	if r.services == nil && slices.Contains(needServices, name) {
		return nil
	}
	switch name {
	case phaseServices:
		return r.measure(ctx, name, func(ctx context.Context) error { return r.services.create(ctx, r.resolvers) })
	case phaseUp:
		return r.doUp(ctx)
	case phaseHold:
		return r.doHold(ctx)
	case phaseResolver:
		return r.doResolver(ctx)
	case phaseLeader:
		return r.doLeader(ctx)
	case phaseStorm:
		return r.doStorm(ctx)
	case phaseTriggers:
		return r.doTriggers(ctx)
	case phaseRestarts:
		return r.doRestarts(ctx)
	default:
		if r.servers == 0 {
			return nil
		}
		return r.measure(ctx, name, r.games.down)
	}
}

// measure notes what a phase costs.
func (r *run) measure(ctx context.Context, name string, do func(context.Context) error) (err error) {
	r.order = append(r.order, name)
	r.figures.Phases[name], err = r.phase(ctx, name, do)
	return err
}

func (r *run) doUp(ctx context.Context) error {
	if r.servers == 0 {
		return nil
	}
	if err := r.measure(ctx, phaseUp, func(ctx context.Context) error { return r.games.up(ctx, r.servers) }); err != nil {
		return err
	}
	q := quantilesOf(r.games.times())
	r.figures.CreatedToReady = &q
	size, err := measureSizes(ctx, r.cluster, "servers")
	r.figures.ServerSize = &size
	return err
}

func (r *run) doHold(ctx context.Context) error {
	if err := r.measure(ctx, phaseHold, func(ctx context.Context) error { return wait(ctx, r.hold) }); err != nil {
		return err
	}
	scraped := map[string]string{cluster.OperatorName: r.cluster.Address}
	if len(r.resolvers) > 0 {
		scraped[cluster.ResolverName] = r.resolvers[0].Address()
		size, err := measureSizes(ctx, r.cluster, "elasticservices")
		if err != nil {
			return err
		}
		r.figures.ServiceSize = &size
	}
	for name, address := range scraped {
		s, err := scrapeOf(ctx, r.cluster, address)
		if err != nil {
			return err
		}
		r.figures.Scrapes[name] = s
	}
	return nil
}

// doResolver wakes services while there is another replica of the resolver, and lets them fall asleep again.
func (r *run) doResolver(ctx context.Context) error {
	if err := r.measure(ctx, phaseResolver, func(ctx context.Context) (err error) {
		r.figures.NewResolverWakes, err = meanwhile(ctx, r.cluster, r.services, r.cluster.Address, r.addResolver)
		return err
	}); err != nil {
		return err
	}
	return r.services.sleepAgain(ctx)
}

// addResolver starts another replica, and waits until all services' slices have it.
func (r *run) addResolver(ctx context.Context) error {
	added, err := r.cluster.PassOn(ctx, cluster.ResolverName+"-2", r.resolvers[0])
	if err != nil {
		return err
	}
	r.resolvers = append(r.resolvers, added)
	return process.Until(ctx, phaseTime, "all slices have the new resolver", func() (bool, error) {
		listed, last := r.services.slices.listed(added.Pod.UID)
		r.figures.NewResolver = rounded(last.Sub(added.Ready).Seconds())
		return listed >= r.services.count, r.cluster.Alive(ctx)
	})
}

func (r *run) doLeader(ctx context.Context) error {
	for i := range r.leaders {
		name := phaseLeader
		if i > 0 {
			name = fmt.Sprintf("%s %d", phaseLeader, i+1)
		}
		if err := r.changeLeader(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) changeLeader(ctx context.Context, name string) error {
	if err := r.cluster.StartStandby(ctx); err != nil {
		return err
	}
	if err := r.measure(ctx, name, func(ctx context.Context) error {
		f, err := handOver(ctx, r.cluster, r.services)
		r.figures.NewLeaders = append(r.figures.NewLeaders, f)
		say("%s", f)
		return err
	}); err != nil {
		return err
	}
	r.cluster.Succeed()
	if r.services == nil {
		return nil
	}
	return r.services.sleepAgain(ctx)
}

func (r *run) doStorm(ctx context.Context) error {
	if err := r.measure(ctx, phaseStorm, func(ctx context.Context) error {
		count := min(stormSize, r.services.count)
		f, err := r.services.storm(ctx, count)
		r.figures.Storm = &f
		return err
	}); err != nil {
		return err
	}
	return r.services.sleepAgain(ctx)
}

// doRestarts restarts each program, those that most others need last. A KWOK that was killed leaves
// leases of nodes behind, for whose end the next one waits.
func (r *run) doRestarts(ctx context.Context) error {
	r.cluster.Keep = true
	defer func() { r.cluster.Keep = false }()
	for _, name := range []string{cluster.OperatorName, cluster.ResolverName, cluster.KWOK, cluster.Scheduler, cluster.ControllerManager, cluster.APIServer, cluster.Etcd} {
		if !r.cluster.Has(name) {
			continue
		}
		if err := r.measure(ctx, "restart of "+name, func(ctx context.Context) error { return r.cluster.Restart(ctx, name) }); err != nil {
			return err
		}
	}
	return nil
}
