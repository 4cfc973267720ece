package slowstart

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// maxBoots bounds the games whose boots are remembered. One beyond them takes another's place.
const maxBoots = 10_000

// Boots remembers how long each game takes from its container's start until it is Ready, as this
// process has seen it: a moving average.
type Boots struct {
	mu    sync.Mutex
	usual map[string]time.Duration
}

// Of is how long a Server's game usually takes; 0: not known.
func (b *Boots) Of(s *v1alpha1.Server) time.Duration { return b.of(bootOf(s)) }

func (b *Boots) of(game string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.usual[game]
}

// took takes in that a game took so long.
func (b *Boots) took(game string, d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if had, ok := b.usual[game]; ok {
		d = (3*had + d) / 4
	} else if len(b.usual) >= maxBoots {
		for other := range b.usual {
			delete(b.usual, other)
			break
		}
	}
	if b.usual == nil {
		b.usual = map[string]time.Duration{}
	}
	b.usual[game] = d
}

// bootOf names what a Server's boots are remembered by: its GameType, its Fleet, or itself.
func bootOf(s *v1alpha1.Server) string {
	for _, label := range []string{wellknown.GameTypeLabel, wellknown.FleetLabel} {
		if name := s.Labels[label]; name != "" {
			return bootKey(s.Namespace, label, name)
		}
	}
	return s.Namespace + "/" + s.Name
}

// OfOwner is how long the Servers of a GameType or a Fleet usually take; 0: not known.
func (b *Boots) OfOwner(kind, namespace, name string) time.Duration {
	label := wellknown.GameTypeLabel
	if kind == "Fleet" {
		label = wellknown.FleetLabel
	}
	return b.of(bootKey(namespace, label, name))
}

func bootKey(namespace, label, name string) string { return namespace + "/" + label + "/" + name }

// Note takes in a boot that has just ended, of a Server that a pass has changed so.
func (b *Boots) Note(now time.Time, before, after *v1alpha1.Server, pod *corev1.Pod) {
	starting := before.Status.State == v1alpha1.ServerStarting || before.Status.State == "" // unwritten so far
	if !starting || after.Status.State != v1alpha1.ServerReady || pod == nil {
		return
	}
	if started := gameStarted(pod); !started.IsZero() {
		b.took(bootOf(after), max(0, now.Sub(started)))
	}
}
