package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// serverIsDown waits until the conditions say why no server is up, and an event
// does, too.
func serverIsDown(ctx context.Context, t *testing.T, g env.Game, reason string, words ...string) {
	t.Helper()
	says(ctx, t, g, conditions.ServerUp, reason, words...)
	says(ctx, t, g, conditions.Ready, reason, words...)
	err := env.WaitUntil(ctx, "an event says "+reason, func(ctx context.Context) (bool, error) {
		var list eventsv1.EventList
		if err := suite.Cluster.Client.List(ctx, &list, client.InNamespace(g.Namespace)); err != nil {
			return false, err
		}
		for _, e := range list.Items {
			if e.Regarding.Kind == "ElasticService" && e.Reason == reason && e.Type == corev1.EventTypeWarning && strings.Contains(e.Note, words[0]) {
				return true, nil
			}
		}
		return false, fmt.Errorf("none of %d events does", len(list.Items))
	})
	if err != nil {
		t.Fatal(err)
	}
}

// serverIsUp waits until the conditions have healed.
func serverIsUp(ctx context.Context, t *testing.T, g env.Game) {
	t.Helper()
	_, err := suite.Cluster.WaitFor(ctx, g.Key(), "healed", func(es *v1alpha1.ElasticService) bool {
		return env.Condition(es, conditions.ServerUp) == metav1.ConditionTrue && env.Condition(es, conditions.Ready) == metav1.ConditionTrue
	})
	if err != nil {
		t.Fatal(err)
	}
}

// says waits until a condition is False for a reason, and checks its sentence.
func says(ctx context.Context, t *testing.T, g env.Game, kind, reason string, words ...string) {
	t.Helper()
	es, err := suite.Cluster.WaitFor(ctx, g.Key(), kind+" False for "+reason, func(es *v1alpha1.ElasticService) bool {
		c := meta.FindStatusCondition(es.Status.Conditions, kind)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == reason
	})
	if err != nil {
		t.Fatal(err)
	}
	message := meta.FindStatusCondition(es.Status.Conditions, kind).Message
	for _, w := range words {
		if !strings.Contains(message, w) {
			t.Errorf("%s says %q, want %q in it", kind, message, w)
		}
	}
}
