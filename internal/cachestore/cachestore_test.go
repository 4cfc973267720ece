package cachestore

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
)

func node(o any) string { return o.(*corev1.Pod).Namespace + "/" + o.(*corev1.Pod).Spec.NodeName }

func pod(namespace, name, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PodSpec{NodeName: node}}
}

// informer is a store's new one, which has objects already.
func informer[T runtime.Object](t *testing.T, s *Store[T], example runtime.Object, keys func(any) string, objects ...runtime.Object) {
	t.Helper()
	i := s.NewInformer(&toolscache.ListWatch{}, example, 0, toolscache.Indexers{})
	if err := i.AddIndexers(toolscache.Indexers{"field:node": func(o any) ([]string, error) { return []string{keys(o)}, nil }}); err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if err := i.GetIndexer().Add(o); err != nil {
			t.Fatal(err)
		}
	}
}

func TestObjectsAreFoundInEachNamespaceAsTheyAre(t *testing.T) {
	s := &Store[*corev1.Pod]{}
	if found, err := s.Find("games", "node", "a"); len(found) > 0 || err != nil {
		t.Errorf("before there is a cache: %v, %v", found, err)
	}
	want := pod("games", "arena", "a")
	informer(t, s, &corev1.Pod{}, node, want, pod("games", "lobby", "b"))
	informer(t, s, &corev1.Pod{}, node, pod("others", "arena", "a"))
	informer(t, s, &corev1.Service{}, func(any) string { return "games/a" }, &corev1.Service{})
	found, err := s.Find("games", "node", "a")
	if err != nil || len(found) != 1 || found[0] != want {
		t.Errorf("found %v, %v, want the cache's own games/arena", found, err)
	}
	if found, err = s.Find("others", "node", "a"); err != nil || len(found) != 1 || found[0].Namespace != "others" {
		t.Errorf("found %v, %v, want others/arena", found, err)
	}
	if found, err = s.Find("games", "node", "c"); err != nil || len(found) != 0 {
		t.Errorf("found %v, %v, want none", found, err)
	}
	if _, err = s.Find("games", "color", "red"); err == nil {
		t.Error("a field without an index was looked for")
	}
}

func BenchmarkFind(b *testing.B) {
	s := &Store[*corev1.Pod]{}
	i := s.NewInformer(&toolscache.ListWatch{}, &corev1.Pod{}, 0, toolscache.Indexers{"field:node": func(o any) ([]string, error) { return []string{node(o)}, nil }})
	for n := range 10_000 {
		if err := i.GetIndexer().Add(pod("games", fmt.Sprint("arena-", n), "a")); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if found, err := s.Find("games", "node", "a"); err != nil || len(found) != 10_000 {
			b.Fatal(len(found), err)
		}
	}
}
