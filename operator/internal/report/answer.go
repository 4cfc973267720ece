package report

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/gamepod"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/operator/internal/hostports"
)

// versionBytes is how much of a hash identifies an answer.
const versionBytes = 12

// Answer is the answer to the sidecar of a Server's Pod; of is the Server's GameType, and empty where it has
// none. Its Version changes with its content: it doesn't depend on anything that reports
// themselves change.
func Answer(server *v1alpha1.Server, pod *corev1.Pod, of *v1alpha1.GameType) reportapi.Answer {
	a := unversioned(server, pod, of)
	a.Version = version(a)
	return a
}

// unversioned is an answer without its Version.
func unversioned(server *v1alpha1.Server, pod *corev1.Pod, of *v1alpha1.GameType) reportapi.Answer {
	deleted := timeOf(server.DeletionTimestamp)
	a := reportapi.Answer{
		Shutdown: deleted != nil || !server.Spec.Runs() || pod.Annotations[wellknown.RestartAnnotation] != "",
		Server: reportapi.Server{
			Name:              server.Name,
			Namespace:         server.Namespace,
			UID:               string(server.UID),
			Generation:        server.Generation,
			CreationTimestamp: server.CreationTimestamp.UTC(),
			DeletionTimestamp: deleted,
			Labels:            server.Labels,
			Annotations:       visible(server.Annotations),
			State:             state(server),
			Allocated:         server.Status.Allocated,
			Address:           address(server, pod),
			PodIP:             pod.Status.PodIP,
			NodeName:          pod.Spec.NodeName,
			Ports:             hostports.Status(server, pod),
			Counters:          server.Spec.Counters,
			Lists:             server.Spec.Lists,
		},
	}
	a.GameStarted, a.GameEnded = gameTimes(server, pod)
	a.GameWaits = waits(server, pod)
	a.Unreported = cmp.Or(server.Spec.Deletion.Unreported, v1alpha1.DeletionAllowed)
	a.Drain = server.Spec.Drain || a.Shutdown
	a.SkipFull = of.Spec.Service.SkipFull
	if server.Spec.Players != nil {
		a.Server.Capacity = server.Spec.Players.Capacity
	}
	return a
}

// state is a Server's state. The controller leaves it unwritten while the Pod of a new one starts.
func state(server *v1alpha1.Server) v1alpha1.ServerState {
	if server.Status.State == "" {
		return v1alpha1.ServerStarting
	}
	return server.Status.State
}

// address is where players reach a Server: its node, or else its Pod, whose address is known
// before the controller writes it.
func address(server *v1alpha1.Server, pod *corev1.Pod) string {
	if slices.ContainsFunc(server.Spec.Ports, hostports.Exposed) {
		return server.Status.Address
	}
	return pod.Status.PodIP
}

// version is a short hash of an answer without Version and Restored.
func version(a reportapi.Answer) string {
	a.Version = ""
	text, err := json.Marshal(a)
	if err != nil {
		return "" // everything in it can be written as JSON
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:versionBytes])
}

// visible are the annotations that a game may use. kubectl's last-applied annotation is left
// out: it repeats the whole spec.
func visible(annotations map[string]string) map[string]string {
	if _, ok := annotations[corev1.LastAppliedConfigAnnotation]; !ok {
		return annotations
	}
	kept := maps.Clone(annotations)
	delete(kept, corev1.LastAppliedConfigAnnotation)
	return kept
}

// GameStarted is when the game of a Server was started in its Pod; nil while it doesn't run.
func GameStarted(server *v1alpha1.Server, pod *corev1.Pod) *time.Time {
	started, _ := gameTimes(server, pod)
	return started
}

// gameTimes are when the game's container was started and, if it doesn't run, when it ended. At
// most one is set, and none before the first start.
func gameTimes(server *v1alpha1.Server, pod *corev1.Pod) (started, ended *time.Time) {
	if c := gamepod.Status(server, pod); c != nil {
		switch {
		case c.State.Running != nil:
			return timeOf(&c.State.Running.StartedAt), nil
		case c.State.Terminated != nil:
			return nil, timeOf(&c.State.Terminated.FinishedAt)
		case c.LastTerminationState.Terminated != nil:
			return nil, timeOf(&c.LastTerminationState.Terminated.FinishedAt)
		}
	}
	return nil, nil
}

// waits reports whether the game's container can't be started, and never was. Its image may be missing, for
// example: kubelet gives other reasons while a Pod is set up.
func waits(server *v1alpha1.Server, pod *corev1.Pod) bool {
	c := gamepod.Status(server, pod)
	if c == nil || c.State.Waiting == nil || c.LastTerminationState.Terminated != nil || c.RestartCount > 0 {
		return false
	}
	return !slices.Contains([]string{"", "PodInitializing", "ContainerCreating"}, c.State.Waiting.Reason)
}

func timeOf(t *metav1.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	whole := t.UTC().Truncate(time.Second)
	return &whole
}
