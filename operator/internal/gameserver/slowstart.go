package gameserver

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/gamepod"
	"dormouse.dev/dormouse/internal/podstatus"
)

// slowAfter is how long a game may start before the status says what is awaited, where it doesn't
// usually take longer.
const slowAfter = time.Minute

// slowAfter is twice as long as the game usually takes, and a minute at least.
func (o observed) slowAfter() time.Duration { return max(slowAfter, 2*o.usualBoot) }

// maxEvents bounds how many events of a Pod are read.
const maxEvents = 20

// slowStart is what a game is waited for that has been starting for too long.
func slowStart(now time.Time, s *v1alpha1.Server, o observed) (awaited string, slow bool) {
	started := gameStarted(o.pod)
	if started.IsZero() || now.Sub(started) < o.slowAfter() {
		return "", false
	}
	heard := "its sidecar has reported nothing"
	if game := report(s, o.pod); game != nil {
		heard = "its sidecar last said " + string(game.State)
		if game.Since != nil {
			heard += " at " + game.Since.UTC().Format(time.TimeOnly) + " UTC"
		}
	}
	since := "The game runs since " + started.UTC().Format(time.TimeOnly) + " UTC and "
	switch probe := gamepod.Probe(&s.Spec); {
	case s.Spec.Readiness == v1alpha1.ServerReadinessSDK:
		return fmt.Sprintf("%shasn't called Ready through the SDK, which readiness: SDK waits for; %s. Look at the game's log.", since, heard), true
	case probe != nil:
		return fmt.Sprintf("%shasn't answered a %s query on port %s; %s. Look whether it listens there and speaks that protocol, at the game's log and at that of container dormouse-sidecar.",
			since, probe.Type, portOfProbe(s, probe), heard), true
	case podstatus.Ready(o.pod):
		return fmt.Sprintf("%s%s. Look at the log of container dormouse-sidecar.", since, heard), true
	default:
		return "", false
	}
}

// portOfProbe names the port that a probe asks.
func portOfProbe(s *v1alpha1.Server, probe *v1alpha1.PlayersProbe) string {
	for _, p := range s.Spec.Ports {
		if probe.Port == "" || probe.Port == p.Name {
			return fmt.Sprintf("%s (%d)", p.Name, p.ContainerPort)
		}
	}
	return probe.Port
}

// gameStarted is when the game's container was started last; zero while it doesn't run.
func gameStarted(pod *corev1.Pod) time.Time {
	for _, c := range pod.Status.ContainerStatuses {
		if c.Name == pod.Annotations[gamepod.ContainerAnnotation] && c.State.Running != nil {
			return c.State.Running.StartedAt.Time
		}
	}
	return time.Time{}
}

// untilSlow is when to look again at a Server that starts; 0 for one that doesn't.
func untilSlow(now time.Time, s *v1alpha1.Server, o observed) time.Duration {
	if o.pod == nil || !scheduled(o.pod) || s.Status.State == v1alpha1.ServerReady {
		return 0
	}
	from := gameStarted(o.pod)
	if from.IsZero() {
		from = o.pod.CreationTimestamp.Time
	}
	if left := from.Add(o.slowAfter()).Sub(now); left > 0 {
		return left
	}
	return slowAfter
}

// observeEvents reads the events of a Pod whose containers haven't been made for a minute: only
// they tell of a volume that can't be mounted.
func (r *Reconciler) observeEvents(ctx context.Context, pod *corev1.Pod) []corev1.Event {
	if podstatus.Is(pod, corev1.ContainersReady) || !gameStarted(pod).IsZero() || !pod.DeletionTimestamp.IsZero() ||
		r.Now().Sub(pod.CreationTimestamp.Time) < slowAfter {
		return nil
	}
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w == nil || w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return nil // its status tells
		}
	}
	var list corev1.EventList
	err := r.Live.List(ctx, &list, client.InNamespace(pod.Namespace), client.Limit(maxEvents),
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("involvedObject.uid", string(pod.UID))})
	if err != nil {
		return nil // it is looked at again in a minute
	}
	return list.Items
}

// maxBoots bounds the games whose boots are remembered. One beyond them takes another's place.
const maxBoots = 10_000

// boots remembers how long each game takes from its container's start until it is Ready, as this
// process has seen it: a moving average.
type boots struct {
	mu    sync.Mutex
	usual map[string]time.Duration
}

// of is how long a game usually takes; 0: not known.
func (b *boots) of(game string) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.usual[game]
}

// took takes in that a game took so long.
func (b *boots) took(game string, d time.Duration) {
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

// UsualBoot is how long the Servers of a GameType or a Fleet usually take from their container's
// start until they are Ready, as this process has seen it; 0: not known.
func (r *Reconciler) UsualBoot(kind, namespace, name string) time.Duration {
	label := wellknown.GameTypeLabel
	if kind == "Fleet" {
		label = wellknown.FleetLabel
	}
	return r.boots.of(bootKey(namespace, label, name))
}

func bootKey(namespace, label, name string) string { return namespace + "/" + label + "/" + name }

// noteBoot takes in a boot that has just ended.
func (r *Reconciler) noteBoot(now time.Time, before, s *v1alpha1.Server, o observed) {
	starting := before.Status.State == v1alpha1.ServerStarting || before.Status.State == "" // unwritten so far
	if !starting || s.Status.State != v1alpha1.ServerReady || o.pod == nil {
		return
	}
	if started := gameStarted(o.pod); !started.IsZero() {
		r.boots.took(bootOf(s), max(0, now.Sub(started)))
	}
}
