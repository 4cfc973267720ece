package allocation_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/internal/program"
	"dormouse.dev/dormouse/operator/internal/restapi"
	"dormouse.dev/dormouse/test/api/fixture"
)

// matchmaker calls two replicas of the REST API.
type matchmaker struct {
	replicas [2]string
	token    string
	http     *http.Client
	// writes are the replicas' own, to the API server.
	writes atomic.Int64
}

func newMatchmaker(b *testing.B, w *world) *matchmaker {
	b.Helper()
	m := &matchmaker{http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 128}}}
	meta := metav1.ObjectMeta{Namespace: w.Namespace, Name: "matchmaker"}
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: meta},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: w.Namespace, Name: "matchmaker"}},
		},
	} {
		if err := w.Admin.Create(b.Context(), o); err != nil {
			b.Fatal(err)
		}
	}
	var err error
	if m.token, err = fixture.Token(b.Context(), w.Admin, w.Namespace, "matchmaker", "", nil); err != nil {
		b.Fatal(err)
	}
	scheme, err := fixture.Scheme()
	if err != nil {
		b.Fatal(err)
	}
	config := fixture.Config(b)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodGet && !strings.HasSuffix(r.URL.Path, "reviews") {
				m.writes.Add(1)
			}
			return next.RoundTrip(r)
		})
	})
	for i := range m.replicas {
		s, err := restapi.New(b.Context(), config, scheme, restapi.Options{Namespace: w.Namespace, Rate: 1e6, Burst: 1e6}, program.Process{Log: logr.Discard()}, restapi.NewMetrics(nil))
		if err != nil {
			b.Fatal(err)
		}
		filled := make(chan struct{})
		go func() { _ = s.Start(b.Context(), func() { close(filled) }) }()
		<-filled
		web := httptest.NewServer(s.Handler)
		b.Cleanup(web.Close)
		m.replicas[i] = web.URL
	}
	return m
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (m *matchmaker) call(ctx context.Context, replica int, path, body string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, m.replicas[replica%2]+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+m.token)
	request.Header.Set("Content-Type", "application/json")
	answer, err := m.http.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("answered %s %s", answer.Status, text)
	}
	return err
}

// BenchmarkAllocate measures a closed loop of callers over 500 Ready Servers, through two replicas of
// the REST API: each allocates and releases. The times are those of the allocations alone; the rate
// is of both together.
func BenchmarkAllocate(b *testing.B) {
	w := newWorld(b)
	w.serversOf(500, 0)
	leader := w.replica(true)
	w.seen(leader, 500)
	m := newMatchmaker(b, w)
	for _, callers := range []int{8, 64} {
		b.Run(fmt.Sprint(callers, " callers"), func(b *testing.B) {
			var mu sync.Mutex
			var took []time.Duration
			var group sync.WaitGroup
			w.Writes.Take()
			m.writes.Store(0)
			began := time.Now()
			for c := range callers {
				group.Go(func() {
					var own []time.Duration
					for i := range b.N {
						session := fmt.Sprintf("%d/%d", c, i)
						asked := time.Now()
						if err := m.call(b.Context(), c, "/api/v1/allocate", fmt.Sprintf(`{"session":%q,"target":%q}`, session, game)); err != nil {
							b.Error(err)
							return
						}
						own = append(own, time.Since(asked))
						if err := m.call(b.Context(), c, "/api/v1/allocate/release", fmt.Sprintf(`{"session":%q}`, session)); err != nil {
							b.Error(err)
							return
						}
					}
					mu.Lock()
					took = append(took, own...)
					mu.Unlock()
				})
			}
			group.Wait()
			slices.Sort(took)
			if len(took) == 0 {
				return
			}
			b.ReportMetric(float64(len(took))/time.Since(began).Seconds(), "allocations/s")
			b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(float64(m.writes.Load())/float64(len(took)), "api-writes/allocation")
			b.ReportMetric(0, "ns/op")
		})
	}
}
