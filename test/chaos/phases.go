package chaos

import (
	"context"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/env"
)

// phaseInterval is how often phases are looked at; none lasts for less.
const phaseInterval = 500 * time.Millisecond

// phases follow the games' ElasticServices, and count how often they fell
// asleep and woke. They also keep the addresses of the games' pods: a server
// that answers over UDP does not know its own.
type phases struct {
	mu            sync.Mutex
	servers       map[string]netip.Addr
	names         []string
	last          map[string]v1alpha1.Phase
	seen          time.Time
	wakes, sleeps int
}

func newPhases(gs []env.Game) *phases {
	p := &phases{last: map[string]v1alpha1.Phase{}, servers: map[string]netip.Addr{}}
	for _, g := range gs {
		p.names = append(p.names, g.Name)
	}
	return p
}

func (p *phases) watch(ctx context.Context, e *env.Env, namespace string) {
	tick := time.NewTicker(phaseInterval)
	defer tick.Stop()
	for {
		var services v1alpha1.ElasticServiceList
		var pods corev1.PodList
		asked := time.Now()
		listing, cancel := context.WithTimeout(ctx, callTime)
		// An error means that the API server is away, and nothing changes.
		if err := e.Client.List(listing, &services, client.InNamespace(namespace)); err == nil {
			p.take(services.Items, asked)
		}
		if err := e.Client.List(listing, &pods, client.InNamespace(namespace)); err == nil {
			p.takePods(pods.Items)
		}
		cancel()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (p *phases) take(items []v1alpha1.ElasticService, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = at
	for _, es := range items {
		before, now := p.last[es.Name], es.Status.Phase
		p.last[es.Name] = now
		if before == "" || before == now {
			continue
		}
		if now == v1alpha1.PhaseAsleep {
			p.sleeps++
		}
		if before == v1alpha1.PhaseAsleep {
			p.wakes++
		}
	}
}

func (p *phases) takePods(pods []corev1.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pod := range pods {
		if addr, err := netip.ParseAddr(pod.Status.PodIP); err == nil {
			p.servers[pod.Name] = addr
		}
	}
}

// server is a pod's address, or the zero one if it was never seen.
func (p *phases) server(name string) netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.servers[name]
}

// asleep reports whether a game was asleep when it was last seen, and that was lately.
func (p *phases) asleep(game int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last[p.names[game]] == v1alpha1.PhaseAsleep && time.Since(p.seen) < 3*phaseInterval
}

// counts are the wakes, the sleeps, and how many games sleep now.
func (p *phases) counts() (wakes, sleeps, asleep int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, phase := range p.last {
		if phase == v1alpha1.PhaseAsleep {
			asleep++
		}
	}
	return p.wakes, p.sleeps, asleep
}
