package restapi

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	reviews "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/restapi/access"
	"dormouse.dev/dormouse/operator/internal/restapi/allocate"
	"dormouse.dev/dormouse/operator/internal/restapi/feed"
	"dormouse.dev/dormouse/operator/internal/restapi/hosting"
	"dormouse.dev/dormouse/operator/internal/restapi/page"
)

// world is the API and its page with server 7 of the game chess, which is offered. Tokens that begin with good- are somebody's, who may do
// everything.
type world struct {
	t       *testing.T
	handler http.Handler
	gate    *gate
	people  people
	// asked is how many tokens the API server was asked about.
	asked int
}

// newWorld makes the API with a log. What its streams have comes from a cluster, which may be nil.
func newWorld(t *testing.T, log logr.Logger, cluster kubernetes.Interface) *world {
	t.Helper()
	w := &world{t: t}
	reviewing := reviews.NewClientset()
	reviewing.PrependReactor("create", "tokenreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		w.asked++
		review := a.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		if name, ok := strings.CutPrefix(review.Spec.Token, "good-"); ok {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: name}}
		}
		return true, review, nil
	})
	reviewing.PrependReactor("create", "subjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		review.Status.Allowed = true
		return true, review, nil
	})
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	server := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: "servers", Name: "server-7", Labels: map[string]string{wellknown.HostedGameLabel: "chess"}}}
	server.Spec.Template.Spec.Containers = []corev1.Container{{Name: "game", Image: "game:1"}}
	server.Status.PodName = "server-7-0"
	chess := &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Namespace: "servers", Name: "chess", Labels: map[string]string{wellknown.CatalogLabel: "true"}}}
	chess.Spec.Template.Spec = *server.Spec.DeepCopy()
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(server, chess).WithReturnManagedFields().Build()
	service, err := allocate.New(t.Context(), &informertest.FakeInformers{Scheme: scheme}, c, c)
	if err != nil {
		t.Fatal(err)
	}
	metrics, reviewer := NewMetrics(nil), access.New(reviewing, newUnknowns())
	s := &servers{
		hosting: &hosting.Hosting{Client: c, Cached: c, Now: time.Now, Namespace: "servers"}, access: reviewer, metrics: metrics, now: time.Now,
		streams: &streams{client: cluster, namespace: "servers", metrics: metrics, total: maxStreams, ofUser: maxStreamsOfUser, those: map[[32]byte]int{}},
	}
	w.gate = &gate{access: reviewer, rate: 1000, burst: 1000, rates: utilcache.NewLRUExpireCache(10), metrics: metrics, log: log, now: time.Now}
	w.people = people{servers: s, gate: w.gate, feed: feed.New(s.hosting, time.Now, log)}
	mux := http.NewServeMux()
	api := newAPI(mux)
	api.UseMiddleware(w.gate.middleware)
	s.register(api)
	s.registerStreams(api)
	a := &allocations{
		service: service, access: reviewer, namespace: "servers",
		waiting: &streams{metrics: metrics, total: maxWaiting, ofUser: maxWaitingOfUser, what: "waiting", those: map[[32]byte]int{}},
	}
	a.register(api)
	mux.Handle("/", logging(log, page.New(w.people, page.Options{})))
	w.handler = mux
	return w
}

// call makes a call with a token, if there is one, from an address.
func (w *world) call(method, path, token, from, body string) *httptest.ResponseRecorder {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), method, path, strings.NewReader(body))
	r.RemoteAddr = from
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	r.Header.Set("Content-Type", "application/json")
	if strings.HasPrefix(body, "token=") {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	answer := httptest.NewRecorder()
	w.handler.ServeHTTP(answer, r)
	return answer
}

// want fails the test unless a call was answered with a status.
func (w *world) want(answer *httptest.ResponseRecorder, status int) {
	w.t.Helper()
	if answer.Code != status {
		text, _ := io.ReadAll(answer.Body)
		w.t.Fatalf("answered %d %s, want %d", answer.Code, text, status)
	}
}
