package setup

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// counting counts look-ups.
type counting struct {
	meta.RESTMapper
	lookups int
}

func (c *counting) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	c.lookups++
	return c.RESTMapper.RESTMapping(kind, versions...)
}

// discovered is a mapper as it is made of what an API server has.
func discovered(groups ...string) meta.RESTMapper {
	var list []*restmapper.APIGroupResources
	for _, group := range groups {
		version := metav1.GroupVersionForDiscovery{GroupVersion: group + "/v1", Version: "v1"}
		list = append(list, &restmapper.APIGroupResources{
			Group: metav1.APIGroup{Name: group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version},
			VersionedResources: map[string][]metav1.APIResource{"v1": {
				{Name: "pods", Namespaced: true, Kind: "Pod"}, {Name: "nodes", Kind: "Node"},
			}},
		})
	}
	return restmapper.NewDiscoveryRESTMapper(list)
}

func TestAKindIsLookedUpOnce(t *testing.T) {
	t.Parallel()
	inner := &counting{RESTMapper: discovered("", "other.example")}
	m := &rememberingMapper{RESTMapper: inner}
	for range 3 {
		for object, want := range map[string]bool{"Pod": true, "Node": false} {
			got, err := apiutil.IsGVKNamespaced(schema.GroupVersionKind{Version: "v1", Kind: object}, m)
			if err != nil || got != want {
				t.Errorf("%s is in a namespace: %t, %v; want %t", object, got, err, want)
			}
		}
		if _, err := m.RESTMapping(schema.GroupKind{Kind: "Pod"}, "v2"); !meta.IsNoMatchError(err) {
			t.Errorf("a version that isn't there: %v, want that it has no match", err)
		}
	}
	// One that isn't there may come.
	if inner.lookups != 2+3 {
		t.Errorf("%d look-ups, want one for each kind and three for the version that isn't there", inner.lookups)
	}
}

// BenchmarkRead is what it costs a read of the cache to find out whether Pods have namespaces.
func BenchmarkRead(b *testing.B) {
	inner := discovered("", "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s")
	for name, m := range map[string]meta.RESTMapper{"looked up": inner, "remembered": &rememberingMapper{RESTMapper: inner}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := apiutil.IsObjectNamespaced(&corev1.Pod{}, clientgoscheme.Scheme, m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
