package elasticservice_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/test/api/fixture"
)

func TestTwoHundredWakeCallsWriteTheTargetOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	since := w.asleep("lobby")
	// A replica that didn't wake a service which has just fallen asleep says
	// Asleep, because it can't know yet that the wake came second.
	asleep := w.want("lobby", promptly, func(es *v1alpha1.ElasticService) error {
		if asleep := time.Since(es.Status.LastSleepTime.Time); asleep < 2*time.Second {
			return fmt.Errorf("asleep for %s only", asleep)
		}
		return nil
	})
	token := resolverToken(t)
	const calls = 200
	answers := make([]informerapi.WakeResponse, calls)
	errs := make([]error, calls)
	var wg sync.WaitGroup
	for i := range calls {
		wg.Go(func() { answers[i], errs[i] = w.tryWake(i%len(cluster.operators), token, "lobby") })
	}
	wg.Wait()
	want := informerapi.WakeResponse{Phase: string(v1alpha1.PhaseWaking), Replicas: 1, LastSleepTime: &asleep.Status.LastSleepTime.Time}
	for i, got := range answers {
		if diff := cmp.Diff(want, got); errs[i] != nil || diff != "" {
			t.Errorf("call %d was answered (-want +got), %v:\n%s", i, errs[i], diff)
		}
	}
	w.must("the target at 1", promptly, since, toReplicas("lobby", 1))
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy), func(es *v1alpha1.ElasticService) error {
		if es.Status.LastWakeTime == nil {
			return fmt.Errorf("no lastWakeTime")
		}
		return nil
	})
	if n := w.count(since, writesTo("lobby")); n != 1 {
		t.Errorf("the target was written %d times, want once", n)
	}
}

func TestAWakeGoesOnWhenItsCallerIsToldToComeAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	since := w.asleep("lobby")
	w.slowScaling(1500 * time.Millisecond)
	w.wake(0, resolverToken(t), "lobby")
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy))
	if n := w.count(since, writesTo("lobby")); n != 1 {
		t.Errorf("the target was written %d times, want once", n)
	}
}

// slowScaling makes the API server think for so long over every write to the
// scale of a Deployment in the namespace.
func (w *world) slowScaling(think time.Duration) {
	w.t.Helper()
	hook := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil || review.Request == nil {
			http.Error(rw, fmt.Sprintf("no review: %v", err), http.StatusBadRequest)
			return
		}
		select {
		case <-time.After(think):
		case <-req.Context().Done():
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		_ = json.NewEncoder(rw).Encode(review) // The API server says what is wrong with it.
	}))
	w.t.Cleanup(hook.Close)
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "slow-" + w.ns},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "slow.example.com",
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				URL:      &hook.URL,
				CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: hook.Certificate().Raw}),
			},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.ns}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Update},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments/scale"}},
			}},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
		}},
	}
	if err := w.c.Create(w.t.Context(), config); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.c.Delete(cluster.cleanup, config) })
	fixture.Eventually(w.t, promptly, "the API server is slow", func(ctx context.Context) error {
		deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "lobby"}}
		scale := &autoscalingv1.Scale{}
		if err := w.c.SubResource("scale").Get(ctx, deployment, scale); err != nil {
			return err
		}
		started := time.Now()
		err := w.c.SubResource("scale").Update(ctx, deployment, client.WithSubResourceBody(scale), client.DryRunAll)
		if took := time.Since(started); err == nil && took < think {
			err = fmt.Errorf("it took %s only", took)
		}
		return err
	})
}

func TestAWakeAsksForMinReplicasAndNeverScalesDown(t *testing.T) {
	t.Parallel()
	min3 := func(es *v1alpha1.ElasticService) { es.Spec.MinReplicas = ptr.To[int32](3) }
	for name, c := range map[string]struct {
		before, after int32
		change        func(*v1alpha1.ElasticService)
	}{
		"from none to the one by default":    {before: 0, after: 1, change: func(*v1alpha1.ElasticService) {}},
		"from none to minReplicas":           {before: 0, after: 3, change: min3},
		"from below to minReplicas":          {before: 1, after: 3, change: min3},
		"not from above down to minReplicas": {before: 5, after: 5, change: min3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.deployment("lobby", c.before)
			w.service("lobby")
			w.elastic("lobby", c.change)
			w.want("lobby", promptly, ready)
			since := w.latest()
			got := w.wake(0, resolverToken(t), "lobby")
			if got.Replicas != c.after || w.replicas("lobby") != c.after {
				t.Errorf("answered %d replicas, the target wants %d; want %d", got.Replicas, w.replicas("lobby"), c.after)
			}
			w.want("lobby", promptly, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy))
			writes := 0
			if c.before != c.after {
				writes = 1
			}
			if n := w.count(since, writesTo("lobby")); n != writes {
				t.Errorf("the target was written %d times, want %d", n, writes)
			}
		})
	}
}

func TestWakingOneOfTwoEqualNamesDoesNotWakeTheOther(t *testing.T) {
	t.Parallel()
	one, other := newWorld(t), newWorld(t)
	one.asleep("lobby")
	since := other.asleep("lobby")
	one.wake(0, resolverToken(t), "lobby")
	one.want("lobby", promptly, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy))
	other.stays("lobby", time.Second, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	other.wantStillAsleep(since)
}

// Many calls for a service cost the API server one wake a second.
func TestManyWakeCallsWriteAWakeASecond(t *testing.T) {
	t.Parallel()
	const calls = 200
	w := newWorld(t)
	since := w.asleep("lobby")
	token := resolverToken(t)
	began := time.Now()
	for range calls {
		w.wake(1, token, "lobby")
	}
	took := time.Since(began)
	es := &v1alpha1.ElasticService{}
	if err := w.read(t.Context(), "lobby", es); err != nil {
		t.Fatal(err)
	}
	w.must("the last wake", promptly, since, func(c change) bool {
		seen, ok := c.object.(*v1alpha1.ElasticService)
		return ok && seen.Status.LastWakeTime.Equal(es.Status.LastWakeTime)
	})
	stamps := map[time.Time]bool{}
	w.count(since, func(c change) bool {
		es, ok := c.object.(*v1alpha1.ElasticService)
		if ok && es.Status.LastWakeTime != nil {
			stamps[es.Status.LastWakeTime.Time] = true
		}
		return false
	})
	if most := int(took/time.Second) + 2; len(stamps) < 1 || len(stamps) > most {
		t.Errorf("%d calls in %s stamped %d wakes, want from 1 to %d", calls, took, len(stamps), most)
	}
}

func TestAwakeServersTakeOverFromTheResolvers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.asleep("lobby")
	w.clients(0, 0, 2)
	w.wake(0, resolverToken(t), "lobby")
	server := newServer()
	server.serving = false
	w.servers("lobby", server)
	w.stays("lobby", time.Second, func(es *v1alpha1.ElasticService) error {
		if es.Status.Phase == v1alpha1.PhaseAwake {
			return fmt.Errorf("awake though the server is not ready")
		}
		return nil
	})
	w.wantEndpoints("lobby", promptly, resolversAre(takesClients))
	server.serving = true
	before, started := w.latest(), time.Now()
	w.servers("lobby", server)
	w.clients(0, 2, 0)
	w.want("lobby", promptly, ready, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
	handedOver := w.must("resolvers that take no clients", promptly, 0, toEndpoints("lobby", resolversAre(keepsClients)))
	if handedOver.revision < before {
		t.Errorf("the resolvers stopped taking clients at revision %d, before the server was up at %d", handedOver.revision, before)
	}
	r := cluster.resolvers.members
	w.wantEndpoints("lobby", afterLingering, map[string]string{r[0].address: keepsClients})
	if took := time.Since(started); took < 10*time.Second {
		t.Errorf("the idle resolver's endpoint went after %s, want 10s from when the server took over", took)
	}
	w.want("lobby", promptly, func(es *v1alpha1.ElasticService) error {
		if es.Status.Sessions != 2 || es.Status.Queued != 0 {
			return fmt.Errorf("%d sessions and %d queued, want 2 and 0", es.Status.Sessions, es.Status.Queued)
		}
		return nil
	})
	fixture.Consistently(t, 2*time.Second, "the resolver with sessions keeps its endpoint", func(ctx context.Context) error {
		list, err := w.ourSlices(ctx, "lobby")
		if err == nil && endpoints(list)[r[0].address] != keepsClients {
			err = fmt.Errorf("endpoints are %v", endpoints(list))
		}
		return err
	})
	w.clients(0, 0, 0)
	started = time.Now()
	w.wantEndpoints("lobby", afterLingering, map[string]string{})
	if took := time.Since(started); took < 8*time.Second {
		t.Errorf("the resolver's endpoint went %s after its last session, want 10s", took)
	}
}
