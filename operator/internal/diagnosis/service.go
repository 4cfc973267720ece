package diagnosis

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// NotSelected is for a Service whose selector fits none of the target's pods; nil: it does,
// or nobody can tell.
func NotSelected(svc *corev1.Service, t Target, pods []corev1.Pod) *Finding {
	if len(svc.Spec.Selector) == 0 || len(pods) == 0 {
		return nil
	}
	selector := labels.SelectorFromSet(svc.Spec.Selector)
	for i := range pods {
		if selector.Matches(labels.Set(pods[i].Labels)) {
			return nil
		}
	}
	f := wrong(v1alpha1.ReasonSelectorFitsNoPod,
		"The selector of Service %s (%s) fits none of the pods of %s %s, so clients wait though servers may be up: correct the selector, or remove it, "+
			"and Dormouse goes by the target's own.", svc.Name, selector, t.Kind, t.Name)
	return &f
}

// Full is for servers that are up and have no room for the clients who wait.
func Full(t Target, since time.Time) Finding {
	return wrong(v1alpha1.ReasonServersFull,
		"Each Server of %s %s that is up has as many players as it may have, and clients have waited for room since %s: "+
			"give it more replicas, or its Servers a larger capacity.", t.Kind, t.Name, clock(since))
}

// NotListening is for a server that is up as far as Kubernetes knows, while clients go on
// waiting.
func NotListening(t Target, since time.Time) Finding {
	return wrong(v1alpha1.ReasonServerNotListening,
		"A pod of %s %s counts as up and clients have waited for it since %s, because nothing takes them on the Service's target ports: "+
			"look at the server's log and the Service's targetPort, and give the container a readinessProbe.", t.Kind, t.Name, clock(since))
}
