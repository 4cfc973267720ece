package elasticservice_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/test/api/fixture"
)

// resolverPort is where the resolvers answer.
const resolverPort = 18080

// resolverFleet is the resolver pods. They listen for each ElasticService that
// they see and carry nobody, unless a test says otherwise for its namespace.
type resolverFleet struct {
	client  client.Client
	seen    cache.Cache
	token   string
	members []*fakeResolver

	mu         sync.Mutex
	behaviours map[string]*behaviour // by namespace
}

// behaviour is how resolvers treat the ElasticServices of a namespace.
type behaviour struct {
	// closed holds the names of ports that no resolver listens on.
	closed map[string]bool
	// phase is the phase that they have seen; empty for the real one.
	phase v1alpha1.Phase
	// clients are those that a resolver carries, by its name.
	clients map[string]informerapi.Sessions
}

// fakeResolver is one resolver pod.
type fakeResolver struct {
	fleet   *resolverFleet
	name    string
	address string
	// ahead is by how much its clock is wrong.
	ahead   time.Duration
	pod     *corev1.Pod
	server  *http.Server
	started time.Time
}

func startResolvers(ctx context.Context, config *rest.Config, c client.WithWatch, token string) (*resolverFleet, error) {
	seen, err := cache.New(config, cache.Options{Scheme: c.Scheme()})
	if err != nil {
		return nil, fmt.Errorf("make the resolvers' cache: %w", err)
	}
	if _, err := seen.GetInformer(ctx, &v1alpha1.ElasticService{}, cache.BlockUntilSynced(false)); err != nil {
		return nil, fmt.Errorf("watch ElasticServices: %w", err)
	}
	go func() { _ = seen.Start(ctx) }()
	if !seen.WaitForCacheSync(ctx) {
		return nil, errors.New("the resolvers' cache didn't fill")
	}
	f := &resolverFleet{
		client: c, seen: seen, token: token,
		behaviours: map[string]*behaviour{},
	}
	for i, ahead := range []time.Duration{0, time.Hour} {
		if _, err := f.add(ctx, fmt.Sprintf("resolver-%d", i), 2+i, ahead); err != nil {
			return nil, errors.Join(err, f.stop())
		}
	}
	return f, nil
}

// add starts a resolver pod whose addresses end in number.
func (f *resolverFleet) add(ctx context.Context, name string, number int, ahead time.Duration) (*fakeResolver, error) {
	r := &fakeResolver{fleet: f, name: name, address: fmt.Sprintf("10.244.0.%d", number), ahead: ahead, started: time.Now()}
	if err := r.answer(ctx); err != nil {
		return nil, err
	}
	labels := map[string]string{fixture.NameLabel: resolverApp}
	pod, err := fixture.RunningPod(ctx, f.client, name, labels, resolverAccount, "node-"+name, r.address, fmt.Sprintf("fd00:244::%d", number))
	if err != nil {
		return nil, errors.Join(err, r.silence())
	}
	r.pod = pod
	f.members = append(f.members, r)
	return r, nil
}

// resolver starts a resolver pod that ends with the test.
func (w *world) resolver(name string, number int) *fakeResolver {
	w.t.Helper()
	r, err := cluster.resolvers.add(w.t.Context(), name, number, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := cluster.resolvers.remove(cluster.cleanup, r); err != nil {
			w.t.Error(err)
		}
	})
	return r
}

// leaves has a resolver pod not be expected any more where clients go.
func (f *resolverFleet) leaves(r *fakeResolver) {
	f.members = slices.DeleteFunc(f.members, func(m *fakeResolver) bool { return m == r })
}

// remove ends a resolver pod.
func (f *resolverFleet) remove(ctx context.Context, r *fakeResolver) error {
	f.leaves(r)
	return errors.Join(client.IgnoreNotFound(f.client.Delete(ctx, r.pod, client.GracePeriodSeconds(0))), r.silence())
}

func (f *resolverFleet) stop() error {
	var errs []error
	for _, r := range f.members {
		errs = append(errs, r.silence())
	}
	return errors.Join(errs...)
}

// change changes how resolvers treat a namespace's ElasticServices.
func (f *resolverFleet) change(namespace string, do func(*behaviour)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.behaviours[namespace]
	if b == nil {
		b = &behaviour{closed: map[string]bool{}, clients: map[string]informerapi.Sessions{}}
		f.behaviours[namespace] = b
	}
	do(b)
}

// answer makes the pod answer the operator, if it doesn't yet.
func (r *fakeResolver) answer(ctx context.Context) error {
	if r.server != nil {
		return nil
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", net.JoinHostPort(r.address, strconv.Itoa(resolverPort)))
	if err != nil {
		return fmt.Errorf("listen for resolver %s: %w", r.name, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+informerapi.RoutesPath, r.routes)
	mux.HandleFunc("GET "+informerapi.SessionsPath, r.sessions)
	r.server = &http.Server{Handler: mux, ReadHeaderTimeout: time.Second}
	go func(s *http.Server) { _ = s.Serve(ln) }(r.server)
	return nil
}

// silence makes the pod unreachable.
func (r *fakeResolver) silence() error {
	if r.server == nil {
		return nil
	}
	s := r.server
	r.server = nil
	if err := s.Close(); err != nil {
		return fmt.Errorf("silence resolver %s: %w", r.name, err)
	}
	return nil
}

func (r *fakeResolver) routes(w http.ResponseWriter, req *http.Request) {
	answer := informerapi.RoutesResponse{}
	r.forEach(w, req, &answer, func(es *v1alpha1.ElasticService, b *behaviour) {
		route := informerapi.Route{
			UID: string(es.UID), Namespace: es.Namespace, Name: es.Name, Service: es.Spec.Service, Phase: string(es.Status.Phase),
		}
		if b != nil && b.phase != "" {
			route.Phase = string(b.phase)
		}
		for _, p := range es.Status.Ports {
			route.Ports = append(route.Ports, informerapi.RoutePort{
				Name: p.Name, Protocol: string(p.Protocol), Port: p.ResolverPort, Listening: b == nil || !b.closed[p.Name],
			})
		}
		if f := es.Status.Front; f != nil {
			route.Ports = append(route.Ports, informerapi.RoutePort{
				Name: f.TargetPort, Port: f.ResolverPort, Front: f.Namespace + "/" + f.Service, Listening: b == nil || !b.closed["front"],
			})
		}
		answer.Routes = append(answer.Routes, route)
	})
}

func (r *fakeResolver) sessions(w http.ResponseWriter, req *http.Request) {
	answer := informerapi.SessionsResponse{Started: r.started.Add(r.ahead), Now: time.Now().Add(r.ahead)}
	r.forEach(w, req, &answer, func(es *v1alpha1.ElasticService, b *behaviour) {
		if b == nil {
			return
		}
		s, ok := b.clients[r.name]
		if !ok {
			return
		}
		s.UID = string(es.UID)
		if s.Sessions > 0 || s.Queued > 0 {
			s.LastActive = time.Now()
		}
		s.LastActive = s.LastActive.Add(r.ahead)
		answer.Services = append(answer.Services, s)
	})
}

// forEach fills an answer from the ElasticServices that the pod sees.
func (r *fakeResolver) forEach(w http.ResponseWriter, req *http.Request, answer any, add func(*v1alpha1.ElasticService, *behaviour)) {
	if req.Header.Get("Authorization") != "Bearer "+r.fleet.token {
		http.Error(w, `{"error":"not the operator's token"}`, http.StatusUnauthorized)
		return
	}
	var list v1alpha1.ElasticServiceList
	// They are only read.
	if err := r.fleet.seen.List(req.Context(), &list, client.UnsafeDisableDeepCopy); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	uid, several := req.URL.Query().Get(informerapi.UIDQuery), req.URL.Query().Get(informerapi.UIDsQuery)
	r.fleet.mu.Lock()
	for i := range list.Items {
		if is := string(list.Items[i].UID); is == uid || uid == "" && (several == "" || slices.Contains(strings.Split(several, ","), is)) {
			add(&list.Items[i], r.fleet.behaviours[list.Items[i].Namespace])
		}
	}
	r.fleet.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}
