package restapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/api/fixture"
)

// Of 200 calls at once for 50 servers, through two replicas, each server is made by exactly one, and
// all calls succeed.
func TestParallelCreatesMakeEachServerOnce(t *testing.T) {
	w := newWorld(t)
	const ids, times, first = 50, 4, 1000
	var made [ids]atomic.Int32
	var calls errgroup.Group
	for n := range ids * times {
		calls.Go(func() error {
			r, err := call(t.Context(), w.replicas[n/ids%2].URL, w.token, http.MethodPost, fmt.Sprintf("/api/v1/server/%d", first+n%ids), two)
			switch {
			case err != nil:
				return err
			case r.status == http.StatusCreated:
				made[n%ids].Add(1)
			case r.status != http.StatusOK:
				return fmt.Errorf("server %d: %v", first+n%ids, r)
			}
			return nil
		})
	}
	if err := calls.Wait(); err != nil {
		t.Fatal(err)
	}
	for i := range made {
		if n := made[i].Load(); n != 1 {
			t.Errorf("server %d was made %d times", first+i, n)
		}
	}
	in := []client.ListOption{client.InNamespace(namespace), client.HasLabels{wellknown.HostedGameLabel}}
	for _, list := range []client.ObjectList{&v1alpha1.ServerList{}, &v1alpha1.ElasticServiceList{}, &corev1.ServiceList{}} {
		if err := w.admin.List(t.Context(), list, in...); err != nil {
			t.Fatal(err)
		}
	}
	// Both replicas list them all, page by page, in the same order.
	for replica := range w.replicas {
		fixture.Eventually(t, wait, "a replica lists all servers", func(ctx context.Context) error {
			var found []int
			for after := 0; ; {
				r, err := call(ctx, w.replicas[replica].URL, w.token, http.MethodGet, fmt.Sprintf("/api/v1/server?limit=7&after=%d&game=minecraft", after), "")
				if err != nil || r.status != http.StatusOK {
					return fixture.Fatal(fmt.Errorf("answered %v: %w", r, err))
				}
				page := r.body["servers"].([]any)
				if len(page) > 7 {
					return fixture.Fatal(fmt.Errorf("a page has %d servers", len(page)))
				}
				for _, s := range page {
					if id := int(s.(map[string]any)["id"].(float64)); id >= first && id < first+ids {
						found = append(found, id)
					}
				}
				next, more := r.body["next"].(float64)
				if !more {
					break
				}
				after = int(next)
			}
			if len(found) != ids || !slices.IsSorted(found) {
				return fmt.Errorf("it lists %d servers: %v", len(found), found)
			}
			return nil
		})
	}
}

// failing lets so many requests through, and then none. The requests about tokens and rights don't
// count.
type failing struct {
	rest http.RoundTripper
	left *atomic.Int64
}

func (f failing) RoundTrip(r *http.Request) (*http.Response, error) {
	if !slices.Contains([]string{"/apis/authentication.k8s.io/v1/tokenreviews", "/apis/authorization.k8s.io/v1/subjectaccessreviews"}, r.URL.Path) &&
		r.URL.Query().Get("watch") == "" && f.left.Add(-1) < 0 {
		return nil, errors.New("connection lost")
	}
	return f.rest.RoundTrip(r)
}

// A create that breaks off anywhere, because the API server goes away or the replica does, is
// answered with 503; nothing of it runs; and the same call again, to another replica, completes it.
func TestACreateThatBreaksOffIsCompleted(t *testing.T) {
	w := newWorld(t)
	var left atomic.Int64
	left.Store(1 << 40)
	broken := w.broken(&left)
	const most = 20
	for requests := range int64(most) {
		id := 2000 + requests
		path := fmt.Sprintf("/api/v1/server/%d", id)
		left.Store(requests)
		r, err := call(t.Context(), broken.URL, w.token, http.MethodPost, path, two)
		left.Store(1 << 40)
		if err != nil {
			t.Fatal(err)
		}
		if r.status == http.StatusCreated {
			if requests < 3 {
				t.Errorf("it took %d requests only", requests)
			}
			return
		}
		if code, _, _ := r.error(); r.status != http.StatusServiceUnavailable || code != "unavailable" || r.header.Get("Retry-After") == "" {
			t.Fatalf("after %d requests it answered %v", requests, r)
		}
		key := client.ObjectKey{Namespace: namespace, Name: fmt.Sprintf("server-%d", id)}
		s := &v1alpha1.Server{}
		if err := w.admin.Get(t.Context(), key, s); err == nil && s.Spec.Runs() {
			t.Errorf("after %d requests a server runs that isn't complete", requests)
		}
		if r := w.call(1, w.token, http.MethodPost, path, two); r.status != 200 && r.status != 201 {
			t.Fatalf("the call after one that broke off after %d requests answered %v", requests, r)
		}
		for _, o := range []client.Object{s, &v1alpha1.ElasticService{}, &corev1.Service{}} {
			if err := w.admin.Get(t.Context(), key, o); err != nil {
				t.Errorf("after %d requests: %v", requests, err)
			}
		}
	}
	t.Errorf("it still isn't made after %d requests", most)
}

// broken starts a replica whose requests fail.
func (w *world) broken(left *atomic.Int64) *httptest.Server {
	w.t.Helper()
	return w.wrapped(func(rt http.RoundTripper) http.RoundTripper { return failing{rt, left} })
}

// wrapped starts a replica whose requests go another way.
func (w *world) wrapped(wrap transport.WrapperFunc) *httptest.Server {
	w.t.Helper()
	token, err := fixture.Token(w.t.Context(), w.admin, fixture.SystemNamespace, "dormouse-api", "", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	config := rest.AnonymousClientConfig(fixture.Config(w.t))
	config.BearerToken = token
	config.Wrap(wrap)
	return w.replica(config)
}

// pausing holds the first write of a Service until it is released.
type pausing struct {
	rest             http.RoundTripper
	once             *sync.Once
	reached, release chan struct{}
}

func (p pausing) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet && strings.Contains(r.URL.Path, "/services") {
		p.once.Do(func() {
			close(p.reached)
			<-p.release
		})
	}
	return p.rest.RoundTrip(r)
}

// Of two calls that find no Service the slower one takes nothing back that the other one was told.
func TestASlowCallTakesBackNoPort(t *testing.T) {
	w := newWorld(t)
	p := pausing{once: &sync.Once{}, reached: make(chan struct{}), release: make(chan struct{})}
	slow := w.wrapped(func(rt http.RoundTripper) http.RoundTripper {
		p := p
		p.rest = rt
		return p
	})
	const path = "/api/v1/server/8200"
	var creating errgroup.Group
	creating.Go(func() error {
		r, err := call(t.Context(), slow.URL, w.token, http.MethodPost, path, two)
		if err == nil && r.status != http.StatusCreated {
			err = fmt.Errorf("answered %v", r)
		}
		return err
	})
	<-p.reached
	answered := w.want(w.call(0, w.token, http.MethodPatch, path+"/port/primary", ""), 200).body["port"]
	close(p.release)
	if err := creating.Wait(); err != nil {
		t.Fatal(err)
	}
	svc := &corev1.Service{}
	if err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "server-8200"}, svc); err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return float64(p.NodePort) == answered }); i < 0 {
		t.Errorf("the port %v was answered; the Service has %+v", answered, svc.Spec.Ports)
	}
	// What is as it was made can be taken away by the next change.
	w.want(w.call(1, w.token, http.MethodPatch, path+"/port/rcon", ""), 200)
	if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(svc), svc); err != nil {
		t.Fatal(err)
	}
	for _, f := range svc.ManagedFields {
		if f.Manager == "dormouse-api" && f.Operation != metav1.ManagedFieldsOperationApply {
			t.Errorf("fields of the API's belong to its %s: %s", f.Operation, f.FieldsV1)
		}
	}
}

// Kubernetes' roles decide who may do what.
func TestKubernetesDecidesWhoMay(t *testing.T) {
	w := newWorld(t)
	w.want(w.call(0, w.token, http.MethodPost, "/api/v1/server/3000", two), 201)
	servers := func(verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"dormouse.dev"}, Resources: []string{"servers"}, Verbs: verbs}
	}
	viewer := w.account("viewer", servers("get", "list"))
	stranger := w.account("stranger")
	of := servers("get", "patch")
	of.ResourceNames = []string{"server-3000"}
	one := w.account("one", of)
	elsewhere, err := fixture.Token(t.Context(), w.admin, namespace, "viewer", "another.example", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		token, method, path, body string
		status                    int
	}{
		"no token, health":             {"", http.MethodGet, "/healthcheck", "", 200},
		"no token, document":           {"", http.MethodGet, "/openapi.json", "", 200},
		"no token":                     {"", http.MethodGet, "/api/v1/server/", "", 401},
		"no token, a change":           {"", http.MethodDelete, "/api/v1/server/3000", "", 401},
		"no token, a log":              {"", http.MethodGet, "/api/v1/server/3000/logs", "", 401},
		"no token, events":             {"", http.MethodGet, "/api/v1/server/3000/events", "", 401},
		"a word for a token":           {"letmein", http.MethodGet, "/api/v1/server/", "", 401},
		"a token for somebody else":    {elsewhere, http.MethodGet, "/api/v1/server/", "", 401},
		"who may do nothing, list":     {stranger, http.MethodGet, "/api/v1/server/", "", 403},
		"who may do nothing, get":      {stranger, http.MethodGet, "/api/v1/server/3000", "", 403},
		"who may do nothing, other":    {stranger, http.MethodGet, "/api/v1/server/3001", "", 403},
		"who may do nothing, allocate": {stranger, http.MethodPost, "/api/v1/allocate", `{"target":"x"}`, 403},
		"who may do nothing, release":  {stranger, http.MethodPost, "/api/v1/allocate/release", `{"session":"x"}`, 403},
		"who may look, list":           {viewer, http.MethodGet, "/api/v1/server/", "", 200},
		"who may look, get":            {viewer, http.MethodGet, "/api/v1/server/3000", "", 200},
		"who may look, create":         {viewer, http.MethodPost, "/api/v1/server/3001", two, 403},
		"who may look, stop":           {viewer, http.MethodPatch, "/api/v1/server/3000/stop", "", 403},
		"who may look, port":           {viewer, http.MethodPatch, "/api/v1/server/3000/port/rcon", "", 403},
		"who may look, delete":         {viewer, http.MethodDelete, "/api/v1/server/3000", "", 403},
		"who may change one, that":     {one, http.MethodPatch, "/api/v1/server/3000/start", "", 200},
		"who may change one, another":  {one, http.MethodPatch, "/api/v1/server/3001/start", "", 403},
		"who may change one, list":     {one, http.MethodGet, "/api/v1/server", "", 403},
		"who may change one, delete":   {one, http.MethodDelete, "/api/v1/server/3000", "", 403},
		"who may change one, resizing": {one, http.MethodPatch, "/api/v1/server/3000", `{"ram_gb":3}`, 200},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second answer is remembered
				r := w.call(0, c.token, c.method, c.path, c.body)
				if r.status != c.status {
					t.Fatalf("answered %v, want %d", r, c.status)
				}
				if c.status == 401 && r.header.Get("WWW-Authenticate") != "Bearer" {
					t.Error("it doesn't say that a bearer token is needed")
				}
			}
		})
	}
}

// Servers that this API didn't make are neither shown nor touched.
func TestOthersServersAreLeftAlone(t *testing.T) {
	w := newWorld(t)
	s := &v1alpha1.Server{Spec: w.offer("minecraft").Spec.Template.Spec}
	s.Namespace, s.Name = namespace, "server-4000"
	for i := range s.Spec.Ports {
		s.Spec.Ports[i].Asleep, s.Spec.Ports[i].Publish = nil, nil
	}
	if err := w.admin.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{
		{http.MethodGet, ""},
		{http.MethodDelete, ""},
		{http.MethodPatch, "/start"},
		{http.MethodPatch, "/stop"},
		{http.MethodPatch, "/port/primary"},
		{http.MethodGet, "/logs"},
	} {
		w.want(w.call(0, w.token, c[0], "/api/v1/server/4000"+c[1], ""), 409)
	}
	w.want(w.call(0, w.token, http.MethodPost, "/api/v1/server/4000", two), 409)
	after := &v1alpha1.Server{}
	if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(s), after); err != nil || after.ResourceVersion != s.ResourceVersion {
		t.Errorf("it was touched: %v", err)
	}
}

// A start and two calls for ports at once, through both replicas, each have what they were promised
// afterwards; and a stop beside a start ends as one of them.
func TestCallsAtOnceUndoNothing(t *testing.T) {
	w := newWorld(t)
	for n := range 8 {
		path := fmt.Sprintf("/api/v1/server/%d", 7000+n)
		w.want(w.call(0, w.token, http.MethodPost, path, two), 201)
		var calls errgroup.Group
		ports := make([]any, 2)
		again := func(replica int, path string) (reply, error) {
			for {
				r, err := call(t.Context(), w.replicas[replica].URL, w.token, http.MethodPatch, path, "")
				if err != nil || r.status == http.StatusOK {
					return r, err
				}
				if r.status != http.StatusServiceUnavailable {
					return r, fmt.Errorf("%s: answered %v", path, r)
				}
			}
		}
		calls.Go(func() error { _, err := again(0, path+"/start"); return err })
		for i, role := range []string{"primary", "rcon"} {
			calls.Go(func() error {
				r, err := again(1-i, path+"/port/"+role)
				ports[i] = r.body["port"]
				return err
			})
		}
		if err := calls.Wait(); err != nil {
			t.Fatal(err)
		}
		key := client.ObjectKey{Namespace: namespace, Name: fmt.Sprintf("server-%d", 7000+n)}
		es, svc := &v1alpha1.ElasticService{}, &corev1.Service{}
		for _, o := range []client.Object{es, svc} {
			if err := w.admin.Get(t.Context(), key, o); err != nil {
				t.Fatal(err)
			}
		}
		if es.Annotations[wellknown.KeepAsleepUntilAnnotation] != "" {
			t.Errorf("server %d was started, and is kept asleep", 7000+n)
		}
		have := map[string]any{}
		for _, p := range svc.Spec.Ports {
			have[p.Name] = float64(p.NodePort)
		}
		if have["game"] != ports[0] || have["rcon"] != ports[1] {
			t.Errorf("server %d has the ports %v; its callers were told %v", 7000+n, have, ports)
		}
		calls.Go(func() error { _, err := again(0, path+"/stop"); return err })
		calls.Go(func() error { _, err := again(1, path+"/start"); return err })
		if err := calls.Wait(); err != nil {
			t.Fatal(err)
		}
		s := &v1alpha1.Server{}
		for _, o := range []client.Object{s, es} {
			if err := w.admin.Get(t.Context(), key, o); err != nil {
				t.Fatal(err)
			}
		}
		if kept := es.Annotations[wellknown.KeepAsleepUntilAnnotation] != ""; kept == *s.Spec.Running {
			t.Errorf("server %d runs: %v, and is kept asleep: %v", 7000+n, *s.Spec.Running, kept)
		}
	}
}

// What an earlier server of the number has left behind is waited for, and what somebody else made is
// left alone.
func TestWhatIsThereAlreadyIsNotTakenOver(t *testing.T) {
	w := newWorld(t)
	for id, c := range map[int]struct {
		labels map[string]string
		owner  []metav1.OwnerReference
		status int
	}{
		8000: {nil, nil, 409},
		8001: {map[string]string{wellknown.HostedGameLabel: "minecraft"}, []metav1.OwnerReference{{
			APIVersion: "dormouse.dev/v1alpha1", Kind: "Server", Name: "server-8001", UID: "earlier", Controller: new(true),
		}}, 503},
	} {
		svc := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("server-%d", id), Labels: c.labels, OwnerReferences: c.owner},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "web", Port: 80}}},
		}
		if err := w.admin.Create(t.Context(), svc); err != nil {
			t.Fatal(err)
		}
		path := fmt.Sprintf("/api/v1/server/%d", id)
		w.want(w.call(0, w.token, http.MethodPost, path, two), c.status)
		after := &corev1.Service{}
		if err := w.admin.Get(t.Context(), client.ObjectKeyFromObject(svc), after); err != nil || after.ResourceVersion != svc.ResourceVersion {
			t.Errorf("server %d: the Service was touched: %v", id, err)
		}
		if err := w.admin.Delete(t.Context(), svc); err != nil {
			t.Fatal(err)
		}
		// Once it is gone the same call completes the server.
		w.want(w.call(1, w.token, http.MethodPost, path, two), 200)
	}
}

// A server outlives the offer of its game: it is stopped and started, and its number stays.
func TestAServerOutlivesTheOfferOfItsGame(t *testing.T) {
	w := newWorld(t)
	gt := w.offer("draughts")
	const path, asked = "/api/v1/server/8100", `{"ram_gb":1,"disk_gb":1,"game":"draughts"}`
	w.want(w.call(0, w.token, http.MethodPost, path, asked), 201)
	port := w.want(w.call(0, w.token, http.MethodPatch, path+"/port/primary", ""), 200).body["port"]
	if err := w.admin.Delete(t.Context(), gt); err != nil {
		t.Fatal(err)
	}
	w.want(w.call(1, w.token, http.MethodPost, path, asked), 200)
	w.want(w.call(1, w.token, http.MethodPatch, path+"/start", ""), 200)
	w.want(w.call(0, w.token, http.MethodPatch, path+"/stop", ""), 200)
	if again := w.want(w.call(1, w.token, http.MethodPatch, path+"/port/primary", ""), 200).body["port"]; again != port {
		t.Errorf("its port was %v and is %v", port, again)
	}
	w.offer("draughts")
	w.want(w.call(0, w.token, http.MethodPatch, path+"/start", ""), 200)
	es := &v1alpha1.ElasticService{}
	if err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "server-8100"}, es); err != nil || es.Annotations[wellknown.KeepAsleepUntilAnnotation] != "" {
		t.Errorf("it was started, and is kept asleep: %v", err)
	}
}
