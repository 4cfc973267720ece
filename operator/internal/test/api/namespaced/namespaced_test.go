// Package namespaced_test runs the operator with the rights of config/namespaced, which
// are in one namespace.
package namespaced_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/internal/program"
	"dormouse.dev/dormouse/operator/internal/options"
	"dormouse.dev/dormouse/operator/internal/setup"
	"dormouse.dev/dormouse/test/api/fixture"
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(fixture.Main(m, fixture.Options{}))
}

func TestAnOperatorWithRightsInOneNamespaceServesThatOne(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	scheme, err := fixture.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	admin, err := client.NewWithWatch(fixture.Config(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"games", "others"} {
		if err := admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := fixture.Install(ctx, admin, "namespaced"); err != nil {
		t.Fatal(err)
	}
	for _, namespace := range []string{"others", "games"} {
		if err := admin.Create(ctx, &v1alpha1.ElasticService{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lobby"},
			Spec: v1alpha1.ElasticServiceSpec{
				Service: "lobby", ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "lobby"},
			},
		}); err != nil {
			t.Fatal(err)
		}
	}
	address := start(ctx, t)
	es := waitFor(ctx, t, admin, "games")
	if c := es.Status.Conditions; len(c) == 0 {
		t.Errorf("the ElasticService of its namespace has no conditions: %+v", es.Status)
	}
	// It is ready once all its caches are filled, so no right is missing.
	for {
		code, _, err := get(ctx, address+"/readyz")
		if err == nil && code == http.StatusOK {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("it doesn't get ready: %d, %v", code, err)
		}
	}
	servesFiles(ctx, t, admin)
	var other v1alpha1.ElasticService
	if err := admin.Get(ctx, client.ObjectKey{Namespace: "others", Name: "lobby"}, &other); err != nil {
		t.Fatal(err)
	}
	// The status was written, so the metrics hear of it.
	for {
		_, text, err := get(ctx, address+"/metrics")
		if strings.Contains(text, `dormouse_elasticservice_condition{condition="Ready",name="lobby",namespace="games",service="lobby"} 0`) {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("the metrics don't have what the status says: %v\n%s", err, text)
		}
	}
	if len(other.Finalizers) > 0 || len(other.Status.Conditions) > 0 {
		t.Errorf("the ElasticService of another namespace was touched: %v, %+v", other.Finalizers, other.Status)
	}
}

// servesFiles makes a Server with files in each namespace: what serves them is made in the operator's
// alone, and the controllers of Servers, of files and of ElasticServices get on with each other.
func servesFiles(ctx context.Context, t *testing.T, admin client.Client) {
	t.Helper()
	for _, namespace := range []string{"others", "games"} {
		s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "survival"}}
		s.Spec.Running = new(false)
		s.Spec.Template.Spec.Containers = []corev1.Container{{Name: "game", Image: "game:1"}}
		s.Spec.Storage = []v1alpha1.StorageSpec{{Name: "world", MountPath: "/data", Size: resource.MustParse("1Gi")}}
		s.Spec.Files = &v1alpha1.FilesSpec{Secret: "sftp", AllowCIDRs: []string{"203.0.113.0/24"}}
		if err := admin.Create(ctx, s); err != nil {
			t.Fatal(err)
		}
	}
	es, s := &v1alpha1.ElasticService{}, &v1alpha1.Server{}
	err := fixture.Poll(ctx, func() error {
		err := errors.Join(
			admin.Get(ctx, client.ObjectKey{Namespace: "games", Name: "survival-files"}, es),
			admin.Get(ctx, client.ObjectKey{Namespace: "games", Name: "survival"}, s),
		)
		served, stopped := meta.FindStatusCondition(s.Status.Conditions, conditions.FilesServed), meta.FindStatusCondition(s.Status.Conditions, conditions.Ready)
		if err == nil && (served == nil || stopped == nil || served.Reason != condition.ReasonOf(es.Status.Conditions, conditions.Ready)) {
			return fmt.Errorf("the Server has %+v, the ElasticService %+v", s.Status.Conditions, es.Status.Conditions)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// No resolver runs here, and nothing else is wrong.
	if es.Status.Phase != v1alpha1.PhaseAsleep || condition.ReasonOf(es.Status.Conditions, conditions.Ready) != reasons.NoResolver {
		t.Errorf("the ElasticService of the files is %+v", es.Status)
	}
	if err := admin.Get(ctx, client.ObjectKey{Namespace: "others", Name: "survival-files"}, es); !apierrors.IsNotFound(err) {
		t.Errorf("in the other namespace: %v", err)
	}
}

// start runs the operator as its service account, and returns its URL.
func start(ctx context.Context, t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	o, err := options.Parse([]string{
		"--listen=" + address, "--leader-elect=false", "--namespace=dormouse-system", "--token-file=" + token, "--namespaces=games",
	})
	if err != nil {
		t.Fatal(err)
	}
	config := fixture.Config(t)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:dormouse-system:dormouse-operator", Groups: []string{"system:serviceaccounts", "system:authenticated"},
	}
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- setup.Run(running, program.Process{Name: "operator"}, config, o) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the operator ended: %v", err)
		}
	})
	return "http://" + address
}

// waitFor gives a namespace's ElasticService once it has conditions.
func waitFor(ctx context.Context, t *testing.T, c client.WithWatch, namespace string) *v1alpha1.ElasticService {
	t.Helper()
	w, err := c.Watch(ctx, &v1alpha1.ElasticServiceList{}, client.InNamespace(namespace))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		if es, ok := event.Object.(*v1alpha1.ElasticService); ok && len(es.Status.Conditions) > 0 {
			return es
		}
	}
	t.Fatal("the ElasticService of its namespace gets no status")
	return nil
}

func get(ctx context.Context, url string) (code int, text string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", fmt.Errorf("ask: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", fmt.Errorf("ask: %w", err)
	}
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), errors.Join(err, response.Body.Close())
}
