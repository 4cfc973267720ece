package kindwatch

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// server stands for an API server with the kinds of example.org.
type server struct {
	resources []metav1.APIResource

	mu sync.Mutex
	// refuse is the status of each answer about objects; 0: they are there.
	refuse int
	// refuseIn is a namespace in which nothing may be listed.
	refuseIn string
	// watches end with the channel.
	watches chan struct{}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	refuse, watches := s.refuse, s.watches
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	write := func(code int, o any) {
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(o)
	}
	lobby := metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby", ResourceVersion: "3", Generation: 2},
	}
	switch {
	case r.URL.Path == "/apis/example.org/v1":
		write(http.StatusOK, metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "example.org/v1", APIResources: s.resources})
	case refuse == http.StatusForbidden || s.refuseIn != "" && strings.Contains(r.URL.Path, "/namespaces/"+s.refuseIn+"/"):
		write(http.StatusForbidden, metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "no"})
	case !strings.HasPrefix(r.URL.Path, "/apis/example.org/v1/") || refuse == http.StatusNotFound:
		write(http.StatusNotFound, metav1.Status{Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: "no"})
	case r.URL.Query().Get("watch") == "true" && r.URL.Query().Get("sendInitialEvents") == "true":
		write(http.StatusUnprocessableEntity, metav1.Status{Status: metav1.StatusFailure, Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid, Message: "old"})
	case r.URL.Query().Get("watch") == "true":
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		lobby.ResourceVersion, lobby.Generation = "4", 3
		_ = json.NewEncoder(w).Encode(map[string]any{"type": "MODIFIED", "object": lobby})
		_ = http.NewResponseController(w).Flush()
		select {
		case <-watches:
		case <-r.Context().Done():
		}
	default:
		write(http.StatusOK, metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"},
			ListMeta: metav1.ListMeta{ResourceVersion: "3"}, Items: []metav1.PartialObjectMetadata{lobby},
		})
	}
}

func (s *server) api(t *testing.T, options Options) *api {
	t.Helper()
	http := httptest.NewServer(s)
	t.Cleanup(func() {
		http.CloseClientConnections()
		http.Close()
	})
	config := &rest.Config{Host: http.URL, QPS: -1}
	d, err := discovery.NewDiscoveryClientForConfigAndClient(config, http.Client())
	if err != nil {
		t.Fatal(err)
	}
	return &api{config: config, http: http.Client(), scheme: runtime.NewScheme(), discovery: d.RESTClient(), options: options}
}

var (
	allVerbs  = metav1.Verbs{"get", "list", "watch"}
	arenas    = metav1.APIResource{Name: "arenas", SingularName: "arena", Kind: "Arena", Namespaced: true, Verbs: allVerbs}
	scaleOf   = metav1.APIResource{Name: "arenas/scale", Kind: "Scale", Group: "autoscaling", Version: "v1", Namespaced: true}
	statusOf  = metav1.APIResource{Name: "arenas/status", Kind: "Arena", Namespaced: true}
	ofCluster = metav1.APIResource{Name: "arenas", SingularName: "arena", Kind: "Arena", Verbs: allVerbs}
	unlisted  = metav1.APIResource{Name: "arenas", SingularName: "arena", Kind: "Arena", Namespaced: true, Verbs: metav1.Verbs{"get"}}
)

func TestWhichKindsCanBeWatched(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		resources []metav1.APIResource
		want      State
	}{
		"one with a scale":          {[]metav1.APIResource{statusOf, arenas, scaleOf}, Watched},
		"none of its name":          {[]metav1.APIResource{statusOf, scaleOf}, Unknown},
		"one without a scale":       {[]metav1.APIResource{arenas, statusOf}, Unsuited},
		"one of no namespace":       {[]metav1.APIResource{ofCluster, scaleOf}, Unsuited},
		"one that can't be watched": {[]metav1.APIResource{unlisted, scaleOf}, Unsuited},
	} {
		a := (&server{resources: c.resources}).api(t, Options{Scalable: true})
		resource, err := a.find(t.Context(), gvk("Arena"))
		got := Watched
		if err != nil {
			got = stateOf(err)
		} else if resource.Resource != "arenas" {
			t.Errorf("%s: it is %s", name, resource)
		}
		if got != c.want {
			t.Errorf("%s: it is %s (%v), want %s", name, got, err, c.want)
		}
	}
	other := gvk("Arena")
	other.Version = "v2"
	if _, err := (&server{}).api(t, Options{}).find(t.Context(), other); stateOf(err) != Unknown {
		t.Errorf("a version that isn't there: %v", err)
	}
}

// answerTime bounds what comes at once.
const answerTime = 20 * time.Second

func within[T any](t *testing.T, what string, c <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-c:
	case <-time.After(answerTime):
		t.Fatalf("%s: not within %s", what, answerTime)
	}
	return got
}

// A watch has all objects, tells changes, and ends once its kind is gone.
func TestAWatchEndsWithItsKind(t *testing.T) {
	t.Parallel()
	s := &server{resources: []metav1.APIResource{arenas, scaleOf}, watches: make(chan struct{})}
	a := s.api(t, Options{Scalable: true, Differ: func(before, after client.Object) bool { return before.GetGeneration() != after.GetGeneration() }})
	synced, changed, ended := make(chan client.Reader, 1), make(chan bool, 10), make(chan error, 1)
	go func() {
		ended <- a.watch(t.Context(), gvk("Arena"), events{
			synced:  func(r client.Reader) { synced <- r },
			changed: func(_ client.Object, listed bool) { changed <- listed },
		})
	}()
	if !within(t, "what is there", changed) || within(t, "what changes", changed) {
		t.Error("it doesn't tell what was listed from what changed")
	}
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(gvk("Arena"))
	if err := within(t, "all objects", synced).Get(t.Context(), client.ObjectKey{Namespace: "games", Name: "lobby"}, o); err != nil || o.Generation != 3 {
		t.Errorf("it has generation %d of the object: %v", o.Generation, err)
	}
	s.mu.Lock()
	s.refuse = http.StatusNotFound
	close(s.watches)
	s.mu.Unlock()
	if err := within(t, "the end", ended); stateOf(err) != Unknown {
		t.Errorf("it ends with %v", err)
	}
}

func TestAWatchThatIsForbiddenEnds(t *testing.T) {
	t.Parallel()
	a := (&server{resources: []metav1.APIResource{arenas}, refuse: http.StatusForbidden}).api(t, Options{Namespaces: map[string]cache.Config{"games": {}, "more": {}}})
	ended := make(chan error, 1)
	go func() { ended <- a.watch(t.Context(), gvk("Arena"), events{}) }()
	if err := within(t, "the end", ended); stateOf(err) != Forbidden {
		t.Errorf("it ends with %v", err)
	}
}

// Who administers one namespace has no say in the others.
func TestANamespaceThatIsForbiddenLeavesTheOthersWatched(t *testing.T) {
	t.Parallel()
	a := (&server{resources: []metav1.APIResource{arenas}, refuseIn: "more", watches: make(chan struct{})}).api(t, Options{Namespaces: map[string]cache.Config{"games": {}, "more": {}}})
	ctx, stop := context.WithCancel(t.Context())
	synced, ended := make(chan client.Reader, 1), make(chan error, 1)
	go func() {
		ended <- a.watch(ctx, gvk("Arena"), events{synced: func(r client.Reader) { synced <- r }, changed: func(client.Object, bool) {}})
	}()
	reader := within(t, "all objects", synced)
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(gvk("Arena"))
	if err := reader.Get(t.Context(), client.ObjectKey{Namespace: "games", Name: "lobby"}, o); err != nil {
		t.Errorf("where it may be watched: %v", err)
	}
	if err := reader.Get(t.Context(), client.ObjectKey{Namespace: "more", Name: "lobby"}, o); !errors.Is(err, errUnwatched) {
		t.Errorf("where it may not: %v, want it read from the API server", err)
	}
	stop()
	if err := within(t, "the end", ended); err != nil {
		t.Errorf("it ends with %v", err)
	}
}

// That nobody needs a watch any more is no error.
func TestAWatchThatIsStoppedEnds(t *testing.T) {
	t.Parallel()
	a := (&server{resources: []metav1.APIResource{arenas}, watches: make(chan struct{})}).api(t, Options{})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- a.watch(ctx, gvk("Arena"), events{synced: func(client.Reader) { stop() }, changed: func(client.Object, bool) {}})
	}()
	if err := within(t, "the end", ended); err != nil {
		t.Errorf("it ends with %v", err)
	}
}
