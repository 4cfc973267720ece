package index

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// informers take one indexer.
type informers struct {
	cache.Informers
	cache.Informer
	indexers toolscache.Indexers
}

func (i *informers) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return i, nil
}

func (i *informers) AddIndexers(indexers toolscache.Indexers) error {
	i.indexers = indexers
	return nil
}

func TestAKeyIsEitherOfANamespaceOrOfAll(t *testing.T) {
	const namespaced, all = "games/lobby", "__all_namespaces/lobby"
	for of, want := range map[Small]string{{}: namespaced, {All: true}: all} {
		for field, want := range map[string]string{Service: want, Front: all, SlicePort: all} {
			i := &informers{}
			es := &v1alpha1.ElasticService{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby"}}
			of.Cache = i
			err := of.IndexField(t.Context(), es, field, func(o client.Object) []string { return []string{o.GetName()} })
			if err != nil {
				t.Fatal(err)
			}
			keys, err := i.indexers["field:"+field](es)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{want}, keys); diff != "" {
				t.Errorf("%s (-want +got):\n%s", field, diff)
			}
		}
	}
}
