package resolverports

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/test/fixture"
)

// cached are the ElasticServices of a cache. How often they were copied is counted.
type cached struct {
	client.Reader
	items  []v1alpha1.ElasticService
	copied int
}

func (c *cached) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	if o.UnsafeDisableDeepCopy == nil || !*o.UnsafeDisableDeepCopy {
		c.copied++
	}
	into.(*v1alpha1.ElasticServiceList).Items = append([]v1alpha1.ElasticService{}, c.items...)
	return nil
}

// withPort is an ElasticService that was made so many seconds after the first, with a resolver port.
func withPort(uid types.UID, age int, port int32) v1alpha1.ElasticService {
	es := *fixture.Lobby(v1alpha1.PhaseAsleep, fixture.T0)
	es.UID, es.CreationTimestamp = uid, metav1.NewTime(fixture.T0.Add(time.Duration(age)*time.Second))
	es.Status.Ports = []v1alpha1.PortStatus{{Name: "game", Protocol: v1alpha1.ProtocolTCP, ResolverPort: port}}
	return es
}

// All are taken in once, and of two with one port the older keeps it, whatever their order in the
// cache.
func TestAssignedPortsAreLearntOldestFirst(t *testing.T) {
	t.Parallel()
	const shared = 10_001
	c := &cached{items: []v1alpha1.ElasticService{withPort("0", 60, shared), withPort("d", 0, 10_002), withPort("c", 30, shared), withPort("a", 30, shared)}}
	for i := range 1000 {
		c.items = append(c.items, withPort(types.UID(fmt.Sprint("other-", i)), 90, int32(20_000+i)))
	}
	a := New(c, 0)
	a.LearnOnce(t.Context())
	a.LearnOnce(t.Context())
	if owner := a.owners[shared].UID; owner != "a" {
		t.Errorf("the port of three is %s's, want a's: it is no younger, and its UID is the first", owner)
	}
	if len(a.owners) != 1002 {
		t.Errorf("%d ports have owners, want 1002", len(a.owners))
	}
	if c.copied > 0 {
		t.Error("the cache copied all ElasticServices")
	}
}
