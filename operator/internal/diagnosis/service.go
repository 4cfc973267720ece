package diagnosis

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"dormouse.dev/dormouse/api/reasons"
)

// NotSelected is the finding that a Service's selector matches none of the target's pods; nil:
// it does, or that isn't known.
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
	f := wrong(reasons.SelectorFitsNoPod,
		"The selector of Service %s (%s) fits none of the pods of %s %s, so clients wait though servers may be up: correct the selector, or remove it, "+
			"and Dormouse goes by the target's own.", svc.Name, selector, t.Kind, t.Name)
	return &f
}

// Full is the finding that servers are up and have no room for the clients that wait.
func Full(t Target, since time.Time) Finding {
	return wrong(reasons.ServersFull,
		"Each Server of %s %s that is up has as many players as it may have, and clients have waited for room since %s: "+
			"give it more replicas, or its Servers a larger capacity.", t.Kind, t.Name, clock(since))
}

// NotListening is the finding that a server is up according to Kubernetes while clients go on
// waiting.
func NotListening(t Target, since time.Time) Finding {
	return wrong(reasons.ServerNotListening,
		"A pod of %s %s counts as up and clients have waited for it since %s, because nothing takes them on the Service's target ports: "+
			"look at the server's log and the Service's targetPort, and give the container a readinessProbe.", t.Kind, t.Name, clock(since))
}
