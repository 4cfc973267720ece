package resolvers

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cached is a cache that has these pods, in this order.
type cached struct {
	client.Reader
	pods []string
}

func (c cached) List(_ context.Context, into client.ObjectList, _ ...client.ListOption) error {
	list := into.(*corev1.PodList)
	for _, name := range c.pods {
		list.Items = append(list.Items, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.244.1." + name},
		})
	}
	return nil
}

// A cache has its objects in any order, and what is said of two pods is to be the same each time.
func TestPodsAreInOrderWithTheirViews(t *testing.T) {
	t.Parallel()
	o, _ := newObserver(t, &pod{})
	p := Pods{Client: cached{pods: []string{"3", "1", "2"}}, Observer: o, Selector: labels.Everything()}
	pods, views, err := p.each(t.Context(), func(address string) View { return View{Routes: map[string]Route{address: {}}} })
	if err != nil || len(pods) != 3 {
		t.Fatalf("%d pods, %v", len(pods), err)
	}
	for i, name := range []string{"1", "2", "3"} {
		if _, its := views[i].Routes["10.244.1."+name]; pods[i].Name != name || !its {
			t.Errorf("pod %d is %s with the view %+v, want %s with its own", i, pods[i].Name, views[i], name)
		}
	}
}
