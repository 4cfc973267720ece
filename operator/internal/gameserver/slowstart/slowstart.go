// Package slowstart decides when a game that starts takes too long, by how long it usually takes, and
// says what is awaited then. It is a function of a Server and its Pod, and of a memory of the boots
// that one process has seen.
package slowstart

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/gamepod"
	"dormouse.dev/dormouse/internal/podstatus"
)

// slowAfter is how long a game may start before the status says what is awaited, where it doesn't
// usually take longer.
const slowAfter = time.Minute

// patience is twice as long as the game usually takes, and a minute at least.
func patience(usual time.Duration) time.Duration { return max(slowAfter, 2*usual) }

// Awaited is a sentence on what a game is waited for that has been starting for too long; usual is how
// long it usually takes, 0: not known.
func Awaited(now time.Time, s *v1alpha1.Server, pod *corev1.Pod, usual time.Duration) (awaited string, slow bool) {
	started := gameStarted(pod)
	if started.IsZero() || now.Sub(started) < patience(usual) {
		return "", false
	}
	heard := "its sidecar has reported nothing"
	if game := gamepod.Report(s, pod); game != nil {
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
	case podstatus.Ready(pod):
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

// Until is after how long to look again at a Server that starts; 0 for one that doesn't.
func Until(now time.Time, s *v1alpha1.Server, pod *corev1.Pod, usual time.Duration) time.Duration {
	if pod == nil || pod.Spec.NodeName == "" || s.Status.State == v1alpha1.ServerReady {
		return 0
	}
	from := gameStarted(pod)
	if from.IsZero() {
		from = pod.CreationTimestamp.Time
	}
	if left := from.Add(patience(usual)).Sub(now); left > 0 {
		return left
	}
	return slowAfter
}

// OnlyEventsTell reports whether only events tell why a Pod's containers haven't been made for a
// minute: of a volume that can't be mounted, say.
func OnlyEventsTell(now time.Time, pod *corev1.Pod) bool {
	if podstatus.Is(pod, corev1.ContainersReady) || !gameStarted(pod).IsZero() || !pod.DeletionTimestamp.IsZero() ||
		now.Sub(pod.CreationTimestamp.Time) < slowAfter {
		return false
	}
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w == nil || w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			return false // its status tells
		}
	}
	return true
}
