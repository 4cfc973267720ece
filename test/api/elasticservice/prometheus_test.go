package elasticservice_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/api/fixture"
)

// metricsServer is a Prometheus that knows one number.
type metricsServer struct {
	url, address string
	// result is the value of a vector with one element; empty: the vector has none.
	result atomic.Value
	// token is what it wants to be shown; empty: nothing.
	token atomic.Value
}

// newMetricsServer runs a Prometheus in the pods' network, which the operator may ask.
func newMetricsServer(t *testing.T) *metricsServer {
	t.Helper()
	address := newServer().address
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address+":9090")
	if err != nil {
		t.Fatalf("listen for Prometheus: %v", err)
	}
	m := &metricsServer{url: "http://" + ln.Addr().String(), address: address}
	m.result.Store("9")
	m.token.Store("")
	server := &http.Server{ReadHeaderTimeout: callTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if token := m.token.Load().(string); token != "" && r.Header.Get("Authorization") != "Bearer "+token {
			http.Error(w, "no", http.StatusUnauthorized)
			return
		}
		if r.URL.Path != "/api/v1/query" || r.FormValue("query") != "sum(players)" {
			http.Error(w, "unexpected request", http.StatusNotFound)
			return
		}
		element := ""
		if value := m.result.Load().(string); value != "" {
			element = fmt.Sprintf(`{"metric":{},"value":[1,%q]}`, value)
		}
		fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, element)
	})}
	server.SetKeepAlivesEnabled(false) // an address is checked when it is dialled
	go func() { _ = server.Serve(ln) }()
	t.Cleanup(func() { _ = server.Close() })
	return m
}

// byMetric is idle below half a player.
func (m *metricsServer) byMetric(auth *v1alpha1.TriggerAuth) func(*v1alpha1.ElasticService) {
	return func(es *v1alpha1.ElasticService) {
		es.Spec.Idle = &v1alpha1.Idle{Triggers: []v1alpha1.Trigger{{Type: v1alpha1.TriggerPrometheus, Prometheus: &v1alpha1.PrometheusTrigger{
			ServerAddress: m.url, Query: "sum(players)", Threshold: "0.5", Auth: auth,
		}}}}
	}
}

// unreadable is that the trigger can't be read, for a reason.
func unreadable(want string) check {
	return func(es *v1alpha1.ElasticService) error {
		if err := hasCondition(conditions.TriggersHealthy, metav1.ConditionFalse, reasons.TriggerUnreadable)(es); err != nil {
			return err
		}
		if m := meta.FindStatusCondition(es.Status.Conditions, conditions.TriggersHealthy).Message; !strings.Contains(m, want) {
			return fmt.Errorf("the message is %q, want %q in it", m, want)
		}
		return nil
	}
}

// anew is long enough for an answer to be asked for anew, and a Secret to be read again.
const anew = 75 * time.Second

func TestAServiceSleepsByWhatAPrometheusSays(t *testing.T) {
	t.Parallel()
	w, m := newWorld(t), newMetricsServer(t)
	w.awake("lobby", 1, sleepAfter(time.Second), m.byMetric(nil))
	w.want("lobby", promptly, hasCondition(conditions.TriggersHealthy, metav1.ConditionTrue, reasons.OK))
	w.stays("lobby", 4*time.Second, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
	since := w.latest()
	m.result.Store("")
	w.want("lobby", anew, unreadable(`end it with "or vector(0)"`))
	if n := w.count(since, toPhase("lobby", v1alpha1.PhaseFallingAsleep)); n > 0 || w.replicas("lobby") != 1 {
		t.Errorf("it fell asleep %d times and has %d replicas, want never and 1", n, w.replicas("lobby"))
	}
	m.result.Store("0.49")
	w.want("lobby", anew, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
}

func TestAPrometheusThatMayNotBeAskedKeepsTheServiceAwake(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.begin("lobby", 1, sleepAfter(time.Second), (&metricsServer{url: "http://192.0.2.1:9090"}).byMetric(nil))
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe), unreadable("isn't among the addresses that the administrator allows"))
	w.stays("lobby", 4*time.Second, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
}

// The API server may get further addresses while the operator runs, which no user may have asked from then on.
func TestAnAddressThatTheAPIServerGetsIsAskedNoMore(t *testing.T) {
	t.Parallel()
	w, m := newWorld(t), newMetricsServer(t)
	w.begin("lobby", 1, sleepAfter(time.Second), m.byMetric(nil))
	w.want("lobby", promptly, hasCondition(conditions.TriggersHealthy, metav1.ConditionTrue, reasons.OK))
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: w.ns, Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{m.address}}},
	}
	if err := w.c.Create(t.Context(), slice); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.c.Delete(cluster.cleanup, slice); err != nil {
			t.Error(err)
		}
	})
	w.want("lobby", anew, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe), unreadable(m.address+" is reserved"))
}

// The Secret is read only where its namespace lets the operator, and is shown only where it says so itself.
func TestATriggersSecretIsShownOnlyToWhomItIsMeantFor(t *testing.T) {
	t.Parallel()
	w, m := newWorld(t), newMetricsServer(t)
	m.token.Store("abc")
	m.result.Store("0")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "dormouse-triggers"}, StringData: map[string]string{"token": "abc"}}
	if err := w.c.Create(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	w.begin("lobby", 1, sleepAfter(time.Second), m.byMetric(&v1alpha1.TriggerAuth{Secret: secret.Name}))
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe), unreadable("apply config/trigger-secrets to its namespace"))
	for _, o := range []client.Object{
		&rbacv1.Role{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "triggers"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, ResourceNames: []string{secret.Name}, Verbs: []string{"get"}}},
		},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "triggers"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "triggers"},
			Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: fixture.SystemNamespace, Name: "dormouse-operator"}},
		},
	} {
		if err := w.c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	w.want("lobby", anew, unreadable(`give it the label dormouse.dev/trigger-auth: "true"`))
	secret.Labels = map[string]string{wellknown.TriggerAuthLabel: "true"}
	if err := w.c.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	w.want("lobby", anew, unreadable("may not be shown to "+m.url))
	secret.Annotations = map[string]string{wellknown.TriggerServersAnnotation: m.url}
	if err := w.c.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	w.want("lobby", anew, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
}
