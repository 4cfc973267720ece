package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/podstatus"
)

// recent is how old a pod's warning may be: kubelet repeats those about a volume
// every two minutes.
const recent = 3 * time.Minute

// newest are the pods of the newest revision, the newest first. Pods that are being deleted
// don't count. Failed ones, which some kinds leave behind, count only when there are no others.
func newest(all []corev1.Pod) []corev1.Pod {
	var pods, failed []corev1.Pod
	for _, p := range all {
		switch {
		case !p.DeletionTimestamp.IsZero(), p.Status.Phase == corev1.PodSucceeded:
		case p.Status.Phase == corev1.PodFailed:
			failed = append(failed, p)
		default:
			pods = append(pods, p)
		}
	}
	if len(pods) == 0 {
		pods = failed
	}
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		if c := b.CreationTimestamp.Compare(a.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return slices.DeleteFunc(pods, func(p corev1.Pod) bool { return revision(p) != revision(pods[0]) })
}

// revision is equal for pods of one template: those of one ReplicaSet, and those
// of a StatefulSet with the same hash.
func revision(p corev1.Pod) string {
	hash := p.Labels["controller-revision-hash"]
	if owner := metav1.GetControllerOf(&p); owner != nil {
		return hash + "/" + string(owner.UID)
	}
	return hash
}

// explainPod explains what keeps one pod from taking clients.
func explainPod(now time.Time, pod *corev1.Pod, events []corev1.Event) Finding {
	if pod.Status.Phase == corev1.PodFailed {
		return wrong(reasons.ServerCrashing, "Pod %s has failed (%s): look at it with kubectl describe pod.",
			pod.Name, quote(strings.TrimSpace(pod.Status.Reason+" "+pod.Status.Message)))
	}
	if c := podstatus.Condition(pod, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionFalse {
		return wrong(reasons.PodUnschedulable, "Pod %s can't be scheduled (%s): add a node that it fits on, or ask for less in the pod template.",
			pod.Name, quote(c.Message))
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if f := explainContainer(pod, s); f != nil {
			return *f
		}
	}
	for _, s := range pod.Status.ContainerStatuses {
		// A game's sidecar says through its probe what it knows of the game.
		if s.State.Running != nil && !s.Ready && s.Name != wellknown.SidecarContainer {
			return explainUnready(now, pod, s)
		}
	}
	return explainStarting(now, pod, events)
}

// nodeLags is kubelet's message about ConfigMaps and Secrets that it hasn't seen in time,
// whether they exist or not. It tries again, and then reports what is wrong.
const nodeLags = "cache: timed out waiting for the condition"

// explainContainer explains a container's problem; nil: none so far.
func explainContainer(pod *corev1.Pod, s corev1.ContainerStatus) *Finding {
	who := fmt.Sprintf("Container %s of pod %s", s.Name, pod.Name)
	var f Finding
	switch w := s.State.Waiting; {
	case w != nil && (strings.HasPrefix(w.Reason, "ErrImage") || w.Reason == "ImagePullBackOff" || w.Reason == "InvalidImageName" ||
		w.Reason == "ImageInspectError" || w.Reason == "RegistryUnavailable"):
		f = wrong(reasons.ImageUnavailable, "%s can't get its image %s (%s): correct the image's name, or what it takes to pull it.",
			who, quote(s.Image), quote(words(w.Reason, w.Message)))
	case w != nil && strings.Contains(w.Message, nodeLags):
		return nil
	case w != nil && (w.Reason == "CreateContainerConfigError" || w.Reason == "CreateContainerError" ||
		w.Reason == "RunContainerError" || w.Reason == "PreCreateHookError" || w.Reason == "PostStartHookError"):
		f = wrong(reasons.ContainerNotCreated, "%s can't be started (%s): create what is missing, or correct the pod template.",
			who, quote(words(w.Reason, w.Message)))
	default:
		ended := s.State.Terminated
		if ended == nil && !s.Ready {
			ended = s.LastTerminationState.Terminated
		}
		// An init container that has finished its work ends with 0.
		if ended == nil || ended.ExitCode == 0 && isInit(pod, s.Name) {
			return nil
		}
		f = explainEnd(who, s, ended)
	}
	return &f
}

// explainEnd explains how a container ended.
func explainEnd(who string, s corev1.ContainerStatus, ended *corev1.ContainerStateTerminated) Finding {
	times := s.RestartCount
	if s.State.Terminated != nil {
		times++
	}
	how := fmt.Sprintf("%s has ended %s, last with exit code %d", who, count(times), ended.ExitCode)
	switch ended.Reason {
	case "OOMKilled":
		return wrong(reasons.ServerCrashing, "%s (OOMKilled): it needs more memory than its limit.", how)
	case "StartError", "ContainerCannotRun":
		return wrong(reasons.ContainerNotCreated, "%s can't be started (%s): correct its command in the pod template.", who, quote(ended.Message))
	case "Completed":
		return wrong(reasons.ServerCrashing, "%s: a server must go on running; look at its log with kubectl logs --previous.", how)
	default:
		return wrong(reasons.ServerCrashing, "%s (%s): look at its log with kubectl logs --previous.", how, quote(words(ended.Reason, "")))
	}
}

func count(times int32) string {
	if times <= 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", times)
}

// explainUnready explains a container that runs in a pod that isn't ready.
func explainUnready(now time.Time, pod *corev1.Pod, s corev1.ContainerStatus) Finding {
	probe, delay := "readiness", time.Duration(0)
	for _, c := range pod.Spec.Containers {
		if c.Name != s.Name {
			continue
		}
		p := c.ReadinessProbe
		if c.StartupProbe != nil && s.Started != nil && !*s.Started {
			probe, p = "startup", c.StartupProbe
		}
		if p != nil {
			delay = time.Duration(p.InitialDelaySeconds) * time.Second
		}
	}
	since := s.State.Running.StartedAt.Time
	if now.Sub(since) < Patience+delay {
		return starting("Container %s of pod %s runs since %s, and its %s probe doesn't succeed yet.", s.Name, pod.Name, clock(since), probe)
	}
	return wrong(reasons.ServerNotReady, "Container %s of pod %s runs since %s and its %s probe doesn't succeed: look at its log, or correct the probe.",
		s.Name, pod.Name, clock(since), probe)
}

// explainStarting explains a pod without a known problem. Its events may have one that its
// status doesn't show.
func explainStarting(now time.Time, pod *corev1.Pod, events []corev1.Event) Finding {
	for _, gate := range pod.Spec.ReadinessGates {
		if c := podstatus.Condition(pod, gate.ConditionType); podstatus.Is(pod, corev1.ContainersReady) && (c == nil || c.Status != corev1.ConditionTrue) {
			return wrong(reasons.ServerNotReady, "Pod %s runs and its readiness gate %s is not True: whoever sets that hasn't.", pod.Name, gate.ConditionType)
		}
	}
	for _, e := range newestFirst(events, pod.UID, now.Add(-recent)) {
		switch {
		case podstatus.Is(pod, corev1.ContainersReady):
		case strings.HasPrefix(e.Reason, "FailedMount"), strings.HasPrefix(e.Reason, "FailedAttach"), strings.HasPrefix(e.Reason, "FailedMap"):
			return wrong(reasons.VolumeNotMounted, "Pod %s waits for a volume (%s): create what it names, or correct the pod template.", pod.Name, quote(e.Message))
		case e.Reason == "FailedCreatePodSandBox":
			return wrong(reasons.SandboxNotCreated, "The node %s can't set up pod %s (%s): look at the node.", pod.Spec.NodeName, pod.Name, quote(e.Message))
		}
	}
	f := starting("Pod %s has been starting since %s; nothing is wrong so far.", pod.Name, clock(pod.CreationTimestamp.Time))
	if events == nil && pod.Spec.NodeName != "" && !podstatus.Is(pod, corev1.ContainersReady) {
		f.Ask = &corev1.ObjectReference{Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	return f
}

// newestFirst are an object's warnings since a time, the newest first.
func newestFirst(events []corev1.Event, of types.UID, since time.Time) []corev1.Event {
	var list []corev1.Event
	for _, e := range events {
		if e.InvolvedObject.UID == of && e.Type == corev1.EventTypeWarning && !lastSeen(e).Before(since.Truncate(time.Second)) {
			list = append(list, e)
		}
	}
	slices.SortStableFunc(list, func(a, b corev1.Event) int { return lastSeen(b).Compare(lastSeen(a)) })
	return list
}

func lastSeen(e corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	default:
		return e.EventTime.Time
	}
}

func isInit(pod *corev1.Pod, name string) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == name })
}

// words joins a reason and a message, if there is one.
func words(reason, message string) string {
	switch {
	case message == "":
		return reason
	case reason == "":
		return message
	}
	return reason + ": " + message
}
