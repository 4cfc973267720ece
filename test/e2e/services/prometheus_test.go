package services

import (
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// scrape has Prometheus ask the pods of a web service past its Service, which would wake it.
const scrape = `
global: {scrape_interval: 1s, evaluation_interval: 1s}
scrape_configs:
  - job_name: web
    dns_sd_configs:
      - {names: ["%s.%s.svc.cluster.local"], type: A, port: %d, refresh_interval: 1s}
`

// A service whose clients go past the resolver sleeps once Prometheus has seen no request for
// long enough, and not while requests come.
func TestAServiceSleepsByWhatPrometheusSays(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	const sleepAfter = 5 * time.Second
	s := asleepSite(ctx, t, env.Game{Namespace: ns, SleepAfter: sleepAfter, ChangeElastic: func(es *v1alpha1.ElasticService) {
		es.Spec.Idle = &v1alpha1.Idle{Triggers: []v1alpha1.Trigger{{
			Type: v1alpha1.TriggerPrometheus,
			Prometheus: &v1alpha1.PrometheusTrigger{
				ServerAddress: "http://prometheus." + ns + ".svc:9090",
				Query:         `sum(increase(web_requests_total[4s])) or vector(0)`,
			},
		}}}
	}})
	es, err := suite.Cluster.WaitPhase(ctx, s.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"prometheus.yml": fmt.Sprintf(scrape, es.Status.PrivateService, ns, webPort)}
	if _, err := suite.Cluster.Prometheus(ctx, ns, files, os.Stderr); err != nil {
		t.Fatal(err)
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "prometheus"},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "prometheus"}, Ports: []corev1.ServicePort{{Port: 9090}}},
	}
	if err := suite.Cluster.Client.Create(ctx, service); err != nil {
		t.Fatal(err)
	}
	post(ctx, t, s)
	s.awake(ctx, t)
	s.client.CloseIdleConnections()

	// Requests come for longer than it takes to be put to sleep.
	const busy = 4 * sleepAfter
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	var last time.Time
	for began := time.Now(); time.Since(began) < busy; {
		<-tick.C
		last = time.Now()
		if from := post(ctx, t, s); s.throughResolver(t, from) {
			t.Fatalf("a request came from %s, a resolver, %s after the first: the service fell asleep", from, last.Sub(began))
		}
	}
	es, err = suite.Cluster.WaitPhase(ctx, s.Key(), v1alpha1.PhaseAsleep, v1alpha1.ModeProxy)
	if err != nil {
		t.Fatal(err)
	}
	if slept := es.Status.LastSleepTime.Sub(last); slept < sleepAfter {
		t.Errorf("it slept %s after the last request, want %s at least", slept, sleepAfter)
	}
}
