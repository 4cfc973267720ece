// Package diagnosis explains in a sentence why a target that should have a server has none that
// is up. It is a pure function of what was read of the target and its pods. The controller
// decides what to read, and when.
//
// It looks at the pods of the newest revision, the newest pod first, and reports the first
// problem. Kubernetes' messages are quoted up to a bound. What a container wrote is not quoted,
// because it may hold anything.
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
	"dormouse.dev/dormouse/operator/internal/text"
)

// Patience is how long a probe that doesn't succeed yet, or a target that has made no pod,
// counts as a slow start and not as a problem.
const Patience = 30 * time.Second

// maxQuote bounds how much of Kubernetes' messages is quoted, in bytes.
const maxQuote = 300

// Input is what was read.
type Input struct {
	// Target is the workload.
	Target Target
	// Pods are the target's own pods; All is set where they are all of them.
	Pods []corev1.Pod
	All  bool
	// Since is when the target should have had a server.
	Since time.Time
	// Events are those of a Finding's Ask; nil when they weren't read.
	Events []corev1.Event
}

// Target is a workload and its status.
type Target struct {
	Kind, Name string
	UID        types.UID
	// Conditions are its status.conditions, of whatever kind it is.
	Conditions []metav1.Condition
}

// Finding is why no server is up.
type Finding struct {
	// Reason is one of the condition ServerUp's.
	Reason string
	// Sentence describes the problem, and what to change where that is known.
	Sentence string
	// Wrong is false when a server may just need its time.
	Wrong bool
	// Nobody reports whether nothing will come up by itself and no client can be on the pods
	// that there are: see NobodyOn.
	Nobody bool
	// Ask is the object whose events may explain more; nil when none do. The caller reads them,
	// and calls Explain again.
	Ask *corev1.ObjectReference
}

// Explain explains why no server is up.
func Explain(now time.Time, in Input) Finding {
	f := explain(now, in)
	f.Nobody = in.All && f.permanent() && NobodyOn(in.Pods)
	return f
}

func explain(now time.Time, in Input) Finding {
	pods := newest(in.Pods)
	if len(pods) == 0 {
		return explainNone(now, in)
	}
	var starting *Finding
	for i := range pods {
		f := explainPod(now, &pods[i], in.Events)
		if f.Wrong {
			return f
		}
		if starting == nil || starting.Ask == nil && f.Ask != nil {
			starting = &f
		}
	}
	return *starting
}

// NobodyOn reports whether no container of these pods runs, so that no client can be on one of
// them. Sidecars take no clients.
func NobodyOn(pods []corev1.Pod) bool {
	for i := range pods {
		sidecars := map[string]bool{wellknown.SidecarContainer: true}
		for _, c := range pods[i].Spec.InitContainers {
			sidecars[c.Name] = c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
		}
		s := &pods[i].Status
		for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
			if c.State.Running != nil && !sidecars[c.Name] {
				return false
			}
		}
	}
	return true
}

// permanent reports whether a target won't come up before somebody changes something. Reasons
// that time may resolve, such as a node that is about to join, are not permanent.
func (f *Finding) permanent() bool {
	switch f.Reason {
	case reasons.ServerCrashing, reasons.ImageUnavailable, reasons.ContainerNotCreated,
		reasons.QuotaExceeded, reasons.PodRefused:
		return f.Wrong
	}
	return false
}

// explainNone explains a target without a pod: its pods are refused, or its controller hasn't
// acted yet.
func explainNone(now time.Time, in Input) Finding {
	t := in.Target
	name := t.Kind + " " + t.Name
	for _, c := range t.Conditions {
		switch {
		case c.Type == "ReplicaFailure" && c.Status == metav1.ConditionTrue:
			return refused(name, c.Message)
		case c.Type == "Progressing" && c.Reason == "DeploymentPaused":
			return wrong(reasons.NoPod, "%s is paused and has no pod: resume it with kubectl rollout resume.", name)
		}
	}
	for _, e := range newestFirst(in.Events, t.UID, in.Since) {
		if e.Reason == "FailedCreate" {
			return refused(name, e.Message)
		}
	}
	f := wrong(reasons.NoPod, "%s has made no pod since %s and doesn't say why: look at its events and at its controller.", name, clock(in.Since))
	for _, c := range t.Conditions {
		bad := c.Type == "Failed" || c.Type == "Degraded"
		good := c.Type == "Progressing" || c.Type == "Ready"
		if c.Message != "" && (bad && c.Status == metav1.ConditionTrue || good && c.Status == metav1.ConditionFalse) {
			f = wrong(reasons.NoPod, "%s has made no pod, and its condition %s is %s (%s).", name, c.Type, c.Status, quote(c.Message))
			break
		}
	}
	if now.Sub(in.Since) < Patience {
		f = starting("%s has made no pod yet.", name)
	}
	if in.Events == nil && t.UID != "" {
		f.Ask = &corev1.ObjectReference{Kind: t.Kind, Name: t.Name, UID: t.UID}
	}
	return f
}

// refused explains pods that the API server refuses.
func refused(name, message string) Finding {
	if strings.Contains(message, "exceeded quota") {
		return wrong(reasons.QuotaExceeded, "%s may not make a pod, because a quota is used up (%s): raise the ResourceQuota, or ask for less in the pod template.",
			name, quote(message))
	}
	return wrong(reasons.PodRefused, "%s may not make a pod (%s): change the pod template, or what refuses it.", name, quote(message))
}

func wrong(reason, format string, args ...any) Finding {
	return Finding{Reason: reason, Sentence: fmt.Sprintf(format, args...), Wrong: true}
}

func starting(format string, args ...any) Finding {
	return Finding{Reason: reasons.ServerStarting, Sentence: fmt.Sprintf(format, args...)}
}

// quote makes one bounded line of a message of Kubernetes.
func quote(words string) string {
	line := strings.ToValidUTF8(strings.Join(strings.Fields(words), " "), "?")
	return text.Cut(strings.TrimRight(line, ".:"), maxQuote, "…")
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }
