package gameautoscaler

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/gameautoscaler/planner"
	"dormouse.dev/dormouse/operator/internal/requeue"
	"dormouse.dev/dormouse/operator/internal/scalewebhook"
	"dormouse.dev/dormouse/operator/internal/text"
)

// ask returns what the webhooks of a GameAutoscaler answered last, by the policies' names, and
// asks those whose time has come. It doesn't wait for them: a pass follows each answer. While the
// target sleeps none is asked, and what it answered before is forgotten.
func (r *Reconciler) ask(now time.Time, gas *v1alpha1.GameAutoscaler, m *state, t *scalable, o planner.Observed, requeueAfter *requeue.After) map[string]planner.Answer {
	if o.Desired == 0 || o.Deleting {
		if m.asks {
			r.Webhooks.Forget(gas.Namespace, gas.Name)
			m.asks = false
		}
		return nil
	}
	answers := map[string]planner.Answer{}
	for i := range gas.Spec.Policies {
		p := &gas.Spec.Policies[i]
		if p.Webhook == nil {
			continue
		}
		m.asks = true
		subject := scalewebhook.Subject{Namespace: gas.Namespace, Name: gas.Name, Policy: p.Name}
		result := r.Webhooks.Poll(subject, planner.Interval(&gas.Spec), endpointOf(p.Webhook), reviewOf(t, o))
		requeueAfter.AtMost(result.Next.Sub(now))
		if !result.Time.IsZero() {
			answers[p.Name] = answerOf(result)
		}
	}
	return answers
}

// answerOf is a webhook's answer as the planner takes it.
func answerOf(result scalewebhook.Result) planner.Answer {
	if result.Err != nil {
		return planner.Answer{Reason: "Webhook" + string(scalewebhook.ReasonOf(result.Err)), Message: text.UpperFirst(result.Err.Error()) + "."}
	}
	return planner.Answer{Replicas: int64(result.Answer.Replicas), Keep: !result.Answer.Scale}
}

func endpointOf(w *v1alpha1.WebhookPolicy) scalewebhook.Endpoint {
	e := scalewebhook.Endpoint{CABundle: w.CABundle, Timeout: max(0, ptr.Deref(w.Timeout, metav1.Duration{}).Duration), Format: scalewebhook.FormatDormouse}
	if w.Format == v1alpha1.WebhookAgones {
		e.Format = scalewebhook.FormatAgones
	}
	if w.URL != nil {
		e.URL = *w.URL
	}
	if s := w.Service; s != nil {
		e.Service = &scalewebhook.ServiceReference{Namespace: s.Namespace, Name: s.Name, Port: s.Port, Path: s.Path}
	}
	return e
}

// reviewOf is what a webhook is asked about.
func reviewOf(t *scalable, o planner.Observed) scalewebhook.Review {
	return scalewebhook.Review{
		Namespace: t.ref.Namespace, Name: t.ref.Name,
		Replicas: o.Current, ReadyReplicas: o.Ready, AllocatedReplicas: o.Ready - o.Empty,
		Players: o.Players, Capacity: o.Capacity,
		Labels: t.labels, Annotations: t.annotations,
	}
}
