// Package diagnosis says in a sentence why a target that should have a server
// has none that is up. It is a pure function of what was read of the target and
// its pods: what to read, and when, is the controller's.
//
// The pods of the newest revision are looked at, the newest pod first, and the
// first thing that is wrong is told. Kubernetes' own words are quoted, cut to a
// bound; what a container wrote is not, since it may hold anything.
package diagnosis

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/text"
)

// Patience is how long what may be a slow start isn't called wrong: a probe that
// doesn't succeed yet, or a target that has made no pod.
const Patience = 30 * time.Second

// maxQuote bounds what is quoted of Kubernetes' words, in bytes.
const maxQuote = 300

// Input is what was read.
type Input struct {
	// Target is the workload.
	Target Target
	// Pods are its own, and All says that they are all of them.
	Pods []corev1.Pod
	All  bool
	// Since is since when it should have a server.
	Since time.Time
	// Events are those of a Finding's Ask; nil when nobody asked.
	Events []corev1.Event
}

// Target is a workload and what its status says.
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
	// Sentence says what is wrong, and what to change where one can tell.
	Sentence string
	// Wrong is false when a server may just need its time.
	Wrong bool
	// Nobody says that nothing comes up by itself, and that nobody can be on what there is:
	// see NobodyOn.
	Nobody bool
	// Ask is the object whose events may tell more; nil when none does. The
	// caller reads them, and explains again.
	Ask *corev1.ObjectReference
}

// Explain says why no server is up.
func Explain(now time.Time, in Input) Finding {
	f := explain(now, in)
	f.Nobody = in.All && f.hopeless() && NobodyOn(in.Pods)
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

// NobodyOn reports whether no container of any of these pods runs, so that nobody can be on one of
// them. Sidecars, which run before the others are started, take no clients.
func NobodyOn(pods []corev1.Pod) bool {
	for i := range pods {
		sidecars := map[string]bool{}
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

// hopeless reports whether a target doesn't come up before somebody changes something. What may
// only take its time, such as a node that is on its way, is not among the reasons.
func (f *Finding) hopeless() bool {
	switch f.Reason {
	case v1alpha1.ReasonServerCrashing, v1alpha1.ReasonImageUnavailable, v1alpha1.ReasonContainerNotCreated,
		v1alpha1.ReasonQuotaExceeded, v1alpha1.ReasonPodRefused:
		return f.Wrong
	}
	return false
}

// explainNone is for a target without a pod: something refuses them, or the
// target's controller hasn't come to it.
func explainNone(now time.Time, in Input) Finding {
	t := in.Target
	name := t.Kind + " " + t.Name
	for _, c := range t.Conditions {
		switch {
		case c.Type == "ReplicaFailure" && c.Status == metav1.ConditionTrue:
			return refused(name, c.Message)
		case c.Type == "Progressing" && c.Reason == "DeploymentPaused":
			return wrong(v1alpha1.ReasonNoPod, "%s is paused and has no pod: resume it with kubectl rollout resume.", name)
		}
	}
	for _, e := range newestFirst(in.Events, t.UID, in.Since) {
		if e.Reason == "FailedCreate" {
			return refused(name, e.Message)
		}
	}
	f := wrong(v1alpha1.ReasonNoPod, "%s has made no pod since %s and doesn't say why: look at its events and at its controller.", name, clock(in.Since))
	for _, c := range t.Conditions {
		bad := c.Type == "Failed" || c.Type == "Degraded"
		good := c.Type == "Progressing" || c.Type == "Ready"
		if c.Message != "" && (bad && c.Status == metav1.ConditionTrue || good && c.Status == metav1.ConditionFalse) {
			f = wrong(v1alpha1.ReasonNoPod, "%s has made no pod, and its condition %s is %s (%s).", name, c.Type, c.Status, quote(c.Message))
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

// refused is for pods that the API server doesn't let in.
func refused(name, message string) Finding {
	if strings.Contains(message, "exceeded quota") {
		return wrong(v1alpha1.ReasonQuotaExceeded, "%s may not make a pod, because a quota is used up (%s): raise the ResourceQuota, or ask for less in the pod template.",
			name, quote(message))
	}
	return wrong(v1alpha1.ReasonPodRefused, "%s may not make a pod (%s): change the pod template, or what refuses it.", name, quote(message))
}

func wrong(reason, format string, args ...any) Finding {
	return Finding{Reason: reason, Sentence: fmt.Sprintf(format, args...), Wrong: true}
}

func starting(format string, args ...any) Finding {
	return Finding{Reason: v1alpha1.ReasonServerStarting, Sentence: fmt.Sprintf(format, args...)}
}

// quote makes one bounded line of Kubernetes' words.
func quote(words string) string {
	line := strings.ToValidUTF8(strings.Join(strings.Fields(words), " "), "?")
	return text.Cut(strings.TrimRight(line, ".:"), maxQuote, "…")
}

func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }
