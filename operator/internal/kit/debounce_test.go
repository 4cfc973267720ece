package kit

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// queued keeps after how long passes were asked for, by their objects' names.
type queued struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	after map[string]time.Duration
}

func (q queued) Add(r reconcile.Request)                       { q.after[r.Name] = 0 }
func (q queued) AddAfter(r reconcile.Request, d time.Duration) { q.after[r.Name] = d }

func TestAChangeWaitsUnlessItIsUrgent(t *testing.T) {
	named := func(name string) client.Object { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	update := event.UpdateEvent{ObjectOld: named("old"), ObjectNew: named("new")}
	urgent := func(o client.Object) bool { return o.GetName() == "new" }
	for name, c := range map[string]struct {
		debounce Debounce
		want     map[string]time.Duration
	}{
		"each waits":                    {Debounce{Wait: time.Second, Find: Itself}, map[string]time.Duration{"new": time.Second}},
		"an urgent one doesn't":         {Debounce{Wait: time.Second, Find: Itself, Urgent: urgent}, map[string]time.Duration{"new": 0}},
		"what was before is asked, too": {Debounce{Wait: time.Second, Find: Itself, Before: true}, map[string]time.Duration{"old": time.Second, "new": time.Second}},
	} {
		q := queued{after: map[string]time.Duration{}}
		c.debounce.Handler().Update(t.Context(), update, q)
		if len(q.after) != len(c.want) {
			t.Errorf("%s: asked for %v, want %v", name, q.after, c.want)
		}
		for object, want := range c.want {
			if got, ok := q.after[object]; !ok || got != want {
				t.Errorf("%s: %s after %s, want %s", name, object, got, want)
			}
		}
	}
}
