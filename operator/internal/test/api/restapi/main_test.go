// Package restapi_test checks the REST API against a real API server: two replicas, each with the
// rights of config/api and no others, and callers with tokens that the API server made.
package restapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/internal/program"
	"dormouse.dev/dormouse/operator/internal/allocation"
	"dormouse.dev/dormouse/operator/internal/restapi"
	"dormouse.dev/dormouse/operator/internal/savings"
	"dormouse.dev/dormouse/test/api/fixture"
)

// namespace is where config/api has the servers.
const namespace = "dormouse-servers"

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard()) // What clients say here is no news.
	os.Exit(fixture.Main(m, fixture.Options{Beside: func(config *rest.Config) (func(bool) error, error) {
		c, err := client.New(config, client.Options{})
		if err != nil {
			return nil, fmt.Errorf("make a client: %w", err)
		}
		return func(bool) error { return nil }, fixture.Install(context.Background(), c, "namespace", "rbac", "api")
	}}))
}

// world is a cluster with two replicas of the API.
type world struct {
	t        *testing.T
	admin    client.Client
	replicas []*httptest.Server
	// token may do everything in the namespace.
	token string
}

func newWorld(t *testing.T, change ...func(*restapi.Options)) *world {
	t.Helper()
	scheme, err := fixture.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	config := fixture.Config(t)
	config.QPS = -1
	w := &world{t: t}
	if w.admin, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		t.Fatal(err)
	}
	w.offer("minecraft")
	w.token = w.account("owner", rbacv1.PolicyRule{APIGroups: []string{"dormouse.dev"}, Resources: []string{"servers", "allocations"}, Verbs: []string{"*"}})
	own, err := fixture.Token(t.Context(), w.admin, fixture.SystemNamespace, "dormouse-api", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	limited := rest.AnonymousClientConfig(config)
	limited.BearerToken = own
	for range 2 {
		w.replicas = append(w.replicas, w.replica(limited, change...))
	}
	w.leader(config, scheme)
	return w
}

// asleep wakes nothing.
type asleep struct{}

// Wake does nothing.
func (asleep) Wake(context.Context, informerapi.WakeRequest) (informerapi.WakeResponse, error) {
	return informerapi.WakeResponse{}, nil
}

// leader answers Allocations, as the operator's leader does.
func (w *world) leader(config *rest.Config, scheme *runtime.Scheme) {
	w.t.Helper()
	of, err := cache.New(config, cache.Options{Scheme: scheme, DefaultNamespaces: map[string]cache.Config{namespace: {}}})
	if err != nil {
		w.t.Fatal(err)
	}
	a, err := allocation.New(w.t.Context(), allocation.Options{
		Cache: of, Client: w.admin, Waker: asleep{}, Events: events.NewFakeRecorder(10000), Log: logr.Discard(),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	var running errgroup.Group
	running.Go(func() error { return of.Start(ctx) })
	running.Go(func() error { return a.Start(ctx) })
	w.t.Cleanup(func() {
		cancel()
		if err := running.Wait(); err != nil {
			w.t.Error(err)
		}
	})
	if err := a.WaitSynced(ctx); err != nil {
		w.t.Fatal(err)
	}
}

// replica starts a replica of the API.
func (w *world) replica(config *rest.Config, change ...func(*restapi.Options)) *httptest.Server {
	w.t.Helper()
	scheme, err := fixture.Scheme()
	if err != nil {
		w.t.Fatal(err)
	}
	o := restapi.Options{
		Namespace: namespace, PublicAddress: "play.example.com", Rate: 10000, Burst: 10000,
		Prices: savings.Prices{CPUHour: 1, Currency: "EUR"},
	}
	for _, f := range change {
		f(&o)
	}
	s, err := restapi.New(w.t.Context(), config, scheme, o, program.Process{Log: logr.Discard()}, restapi.NewMetrics(nil))
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	filled, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- s.Start(ctx, func() { close(filled) }) }()
	select {
	case <-filled:
	case err := <-ended:
		w.t.Fatal(err)
	case <-time.After(time.Minute):
		w.t.Fatal("the servers are not read")
	}
	web := httptest.NewServer(s.Handler)
	w.t.Cleanup(func() {
		web.CloseClientConnections()
		web.Close()
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	})
	return web
}

// offer offers a game.
func (w *world) offer(name string) *v1alpha1.GameType {
	w.t.Helper()
	gt := &v1alpha1.GameType{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{wellknown.CatalogLabel: "true"}},
		Spec: v1alpha1.GameTypeSpec{
			Replicas: new(int32),
			Sleep:    &v1alpha1.SleepSpec{After: &metav1.Duration{Duration: 5 * time.Minute}},
			Template: v1alpha1.ServerTemplate{Spec: v1alpha1.ServerSpec{
				Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "game", Image: "game:1", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}},
				}}}},
				Ports: []v1alpha1.ServerPort{
					{Name: "game", ContainerPort: 25565, Protocol: "minecraft", Asleep: &v1alpha1.Asleep{MOTD: "zzz"}},
					{Name: "rcon", ContainerPort: 25575, Publish: new(false)},
				},
				Storage: []v1alpha1.StorageSpec{{Name: "world", MountPath: "/data", Size: resource.MustParse("1Gi")}},
			}},
		},
	}
	if err := w.admin.Create(w.t.Context(), gt); err != nil && !apierrors.IsAlreadyExists(err) {
		w.t.Fatal(err)
	}
	return gt
}

// account makes an account with rights in the namespace, and returns a token of it.
func (w *world) account(name string, rules ...rbacv1.PolicyRule) string {
	w.t.Helper()
	ctx, meta := w.t.Context(), metav1.ObjectMeta{Namespace: namespace, Name: name}
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: meta},
		&rbacv1.Role{ObjectMeta: meta, Rules: rules},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: name}},
		},
	} {
		if err := w.admin.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			w.t.Fatal(err)
		}
	}
	if len(rules) > 0 {
		w.knows(name, rules[0])
	}
	token, err := fixture.Token(ctx, w.admin, namespace, name, "", nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}

// knows waits until the API server knows of a right that an account has got.
func (w *world) knows(name string, right rbacv1.PolicyRule) {
	w.t.Helper()
	resource, subresource, _ := strings.Cut(right.Resources[0], "/")
	asked := authorizationv1.ResourceAttributes{Namespace: namespace, Verb: right.Verbs[0], Group: right.APIGroups[0], Resource: resource, Subresource: subresource}
	if len(right.ResourceNames) > 0 {
		asked.Name = right.ResourceNames[0]
	}
	fixture.Eventually(w.t, 30*time.Second, "the API server knows of the rights of "+name, func(ctx context.Context) error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + namespace + ":" + name, ResourceAttributes: &asked}}
		if err := w.admin.Create(ctx, review); err != nil {
			return err
		}
		if !review.Status.Allowed {
			return fmt.Errorf("it may not %s %s: %s", asked.Verb, right.Resources[0], review.Status.Reason)
		}
		return nil
	})
}

// reply is an answer of the API.
type reply struct {
	status int
	header http.Header
	body   map[string]any
	text   string
}

// field is the field of the error; code its code.
func (r reply) error() (code, field, message string) {
	e, _ := r.body["error"].(map[string]any)
	code, _ = e["code"].(string)
	field, _ = e["field"].(string)
	message, _ = e["message"].(string)
	return code, field, message
}

func (r reply) String() string { return fmt.Sprintf("%d %s", r.status, r.text) }

// call calls a replica.
func (w *world) call(replica int, token, method, path, body string) reply {
	w.t.Helper()
	r, err := call(w.t.Context(), w.replicas[replica].URL, token, method, path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func call(ctx context.Context, url, token, method, path, body string) (reply, error) {
	request, err := http.NewRequestWithContext(ctx, method, url+path, bytes.NewBufferString(body))
	if err != nil {
		return reply{}, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = answer.Body.Close() }()
	read, err := io.ReadAll(answer.Body)
	if err != nil {
		return reply{}, err
	}
	r := reply{status: answer.StatusCode, header: answer.Header, text: string(read)}
	_ = json.Unmarshal(read, &r.body) // a test that wants JSON looks at it
	return r, nil
}

// want fails the test unless the answer has a status.
func (w *world) want(r reply, status int) reply {
	w.t.Helper()
	if r.status != status {
		w.t.Fatalf("answered %v, want %d", r, status)
	}
	return r
}

// noAllocations returns an error while there is an Allocation.
func (w *world) noAllocations(ctx context.Context) error {
	var left v1alpha1.AllocationList
	if err := w.admin.List(ctx, &left, client.InNamespace(namespace)); err != nil {
		return err
	}
	return fixture.WantEqual("Allocations", len(left.Items), 0)
}
