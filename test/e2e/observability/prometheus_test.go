package observability

import (
	"context"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	prometheusv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/monitoring"
)

// patience covers two scrapes and an evaluation, each a second apart.
const patience = 20 * time.Second

// prometheus is what the tests ask.
type prometheus struct {
	prometheusv1.API
	namespace string
	games     []env.Game
}

// TestPrometheusSeesAll is one test because all of it needs one Prometheus, and
// games that were woken while it watched.
func TestPrometheusSeesAll(t *testing.T) {
	ctx, ns := suite.Namespace(t)
	p := &prometheus{namespace: ns, games: []env.Game{
		{Namespace: ns, Name: "lobby", TCP: []int32{7000}, Probe: true},
		{Namespace: ns, Name: "arena", UDP: []int32{7001}, Probe: true},
	}}
	var asleep sync.WaitGroup
	for _, g := range p.games {
		asleep.Go(func() { suite.Asleep(ctx, t, g) })
	}
	p.start(ctx, t)
	asleep.Wait()
	if t.Failed() {
		return
	}
	p.wake(ctx, t)

	t.Run("every pod of Dormouse is scraped", func(t *testing.T) { p.everyPodIsUp(ctx, t) })
	t.Run("garbage is collected before memory is used up", func(t *testing.T) { p.memoryIsLimited(ctx, t) })
	t.Run("the wakes are in the histograms", func(t *testing.T) { p.histogramsAreFilled(ctx, t) })
	t.Run("every metric is documented", func(t *testing.T) { p.allIsDocumented(ctx, t) })
	t.Run("every panel has data", func(t *testing.T) { p.panelsHaveData(ctx, t) })
	t.Run("every alert can be evaluated", func(t *testing.T) { p.alertsWork(ctx, t) })
}

// start runs Prometheus with what the guide says, but faster.
func (p *prometheus) start(ctx context.Context, t *testing.T) {
	t.Helper()
	scrape, err := monitoring.ScrapeConfig(suite.Cluster.Repo)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := monitoring.RulesFile(suite.Cluster.Repo)
	if err != nil {
		t.Fatal(err)
	}
	const global = "global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}\nrule_files: [/etc/prometheus/rules.yml]\n"
	p.API, err = suite.Cluster.Prometheus(ctx, p.namespace, map[string]string{
		"prometheus.yml": global + discover(ctx, t, scrape), "rules.yml": string(rules),
	}, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
}

// discover puts the cluster's pods, with the labels that Prometheus gives them,
// where the configuration wants it to ask Kubernetes for them. What it makes of
// the labels is the configuration's.
func discover(ctx context.Context, t *testing.T, scrape string) string {
	t.Helper()
	var pods corev1.PodList
	if err := suite.Cluster.Client.List(ctx, &pods); err != nil {
		t.Fatal(err)
	}
	unknown := regexp.MustCompile(`[^a-zA-Z0-9_]`)
	var targets []map[string]any
	for _, pod := range pods.Items {
		if pod.Status.PodIP == "" {
			continue
		}
		labels := map[string]string{
			"__meta_kubernetes_namespace": pod.Namespace, "__meta_kubernetes_pod_name": pod.Name,
			"__meta_kubernetes_pod_phase": string(pod.Status.Phase),
		}
		for name, value := range pod.Annotations {
			labels["__meta_kubernetes_pod_annotation_"+unknown.ReplaceAllString(name, "_")] = value
		}
		// One for each port, or one without.
		var addresses []string
		for _, c := range pod.Spec.Containers {
			for _, port := range c.Ports {
				addresses = append(addresses, net.JoinHostPort(pod.Status.PodIP, fmt.Sprint(port.ContainerPort)))
			}
		}
		if len(addresses) == 0 {
			addresses = []string{pod.Status.PodIP}
		}
		targets = append(targets, map[string]any{"targets": addresses, "labels": labels})
	}
	found, err := yaml.Marshal(targets)
	if err != nil {
		t.Fatal(err)
	}
	const asks = "    kubernetes_sd_configs:\n      - role: pod\n"
	if !strings.Contains(scrape, asks) {
		t.Fatalf("the guide's configuration doesn't look for pods:\n%s", scrape)
	}
	listed := "    static_configs:\n      " + strings.ReplaceAll(strings.TrimSpace(string(found)), "\n", "\n      ") + "\n"
	return strings.Replace(scrape, asks, listed, 1)
}

// wake has a player wake each game, and go on playing.
func (p *prometheus) wake(ctx context.Context, t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, suite.PlayTimeout)
	defer cancel()
	var played sync.WaitGroup
	for _, g := range p.games {
		dial, ports := suite.DialTCP, g.TCP
		if len(g.UDP) > 0 {
			dial, ports = suite.DialUDP, g.UDP
		}
		player := dial(ctx, t, suite.ClusterIP(ctx, t, g, ports[0]))
		played.Go(func() {
			if _, err := player.Exchange(ctx); err != nil {
				t.Errorf("play %s: %v", g.Name, err)
			}
		})
	}
	played.Wait()
}

// ask evaluates an expression until its answer is as wanted.
func (p *prometheus) ask(ctx context.Context, expr string, wanted func(model.Vector) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return env.WaitUntil(ctx, "Prometheus answers "+expr, func(ctx context.Context) (bool, error) {
		value, _, _, err := p.Query(ctx, expr, time.Now())
		if err != nil {
			return false, fmt.Errorf("query: %w", err)
		}
		vector, ok := value.(model.Vector)
		if !ok {
			return false, fmt.Errorf("the answer is a %s", value.Type())
		}
		err = wanted(vector)
		return err == nil, err
	})
}

func (p *prometheus) everyPodIsUp(ctx context.Context, t *testing.T) {
	for _, program := range []string{"operator", "resolver"} {
		var pods corev1.PodList
		if err := suite.Cluster.Client.List(ctx, &pods, client.InNamespace(env.SystemNamespace),
			client.MatchingLabels{"app.kubernetes.io/name": "dormouse-" + program}); err != nil {
			t.Fatal(err)
		}
		running := 0
		for _, pod := range pods.Items {
			if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
				continue
			}
			running++
			expr := fmt.Sprintf(`up{namespace="%s", pod="%s"} == 1 and on (instance) dormouse_build_info{program="%s"}`,
				env.SystemNamespace, pod.Name, program)
			if err := p.ask(ctx, expr, exactly(1)); err != nil {
				t.Error(err)
			}
		}
		if running < 2 {
			t.Errorf("%d pods of the %s run, want 2", running, program)
		}
	}
}

// memoryIsLimited asks what each program's heap may take: less than its container
// may, and not much less.
func (p *prometheus) memoryIsLimited(ctx context.Context, t *testing.T) {
	for _, program := range []string{env.Operator, env.Resolver} {
		pods, err := suite.Cluster.ReadyPods(ctx, program)
		if err != nil {
			t.Fatal(err)
		}
		if len(pods) == 0 {
			t.Errorf("no pod of %s is ready", program)
		}
		for _, pod := range pods {
			most := pod.Spec.Containers[0].Resources.Limits.Memory().Value()
			of := fmt.Sprintf(`go_gc_gomemlimit_bytes{namespace="%s", pod="%s"}`, env.SystemNamespace, pod.Name)
			expr := fmt.Sprintf("%s > %d < %d", of, most*3/4, most)
			if err := p.ask(ctx, expr, exactly(1)); err != nil {
				t.Error(err)
			}
		}
	}
}

func exactly(n int) func(model.Vector) error {
	return func(v model.Vector) error {
		if len(v) != n {
			return fmt.Errorf("%d series, want %d: %v", len(v), n, v)
		}
		return nil
	}
}

func (p *prometheus) histogramsAreFilled(ctx context.Context, t *testing.T) {
	for _, stage := range []string{"asked", "address", "up", "delivered", "total"} {
		expr := fmt.Sprintf(`sum(dormouse_resolver_wake_seconds_count{stage="%s"}) >= %d`, stage, len(p.games))
		if err := p.ask(ctx, expr, exactly(1)); err != nil {
			t.Error(err)
		}
	}
	expr := fmt.Sprintf(`sum by (service) (dormouse_resolver_service_wake_seconds_count{namespace="%s"}) >= 1`, p.namespace)
	if err := p.ask(ctx, expr, exactly(len(p.games))); err != nil {
		t.Error(err)
	}
	expr = fmt.Sprintf(`sum by (service) (dormouse_wakes_total{namespace="%s"}) == 1`, p.namespace)
	if err := p.ask(ctx, expr, exactly(len(p.games))); err != nil {
		t.Error(err)
	}
}

func (p *prometheus) allIsDocumented(ctx context.Context, t *testing.T) {
	page, err := os.ReadFile(filepath.Join(suite.Cluster.Repo, "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	names, _, _, err := p.LabelValues(ctx, model.MetricNameLabel, nil, time.Time{}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	suffix := regexp.MustCompile(`_(bucket|sum|count)$`)
	ours := 0
	for _, name := range names {
		if !strings.HasPrefix(string(name), "dormouse_") {
			continue
		}
		ours++
		if !strings.Contains(string(page), "`"+suffix.ReplaceAllString(string(name), "")+"`") {
			t.Errorf("%s is measured, and not in docs/metrics.md", name)
		}
	}
	if ours == 0 {
		t.Errorf("Prometheus has no metric of ours")
	}
}

func (p *prometheus) panelsHaveData(ctx context.Context, t *testing.T) {
	dashboards, err := monitoring.Dashboards(suite.Cluster.Repo)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dashboards {
		for _, g := range p.games {
			// As Grafana does, with a reader who looks at the last hour.
			variables := strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h", "$namespace", p.namespace, "$service", g.Name)
			for _, panel := range d.Panels {
				for _, target := range panel.Targets {
					expr := variables.Replace(target.Expr)
					if err := p.ask(ctx, expr, hasNumbers); err != nil {
						t.Errorf("%s, panel %q: %v", d.File, panel.Title, err)
					}
				}
			}
			if len(d.Templating.List) < 2 {
				break // It is about no service in particular.
			}
		}
	}
}

func hasNumbers(v model.Vector) error {
	for _, sample := range v {
		if !math.IsNaN(float64(sample.Value)) {
			return nil
		}
	}
	return fmt.Errorf("no data: %v", v)
}

func (p *prometheus) alertsWork(ctx context.Context, t *testing.T) {
	want, err := monitoring.Rules(suite.Cluster.Repo)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = env.WaitUntil(ctx, "Prometheus has evaluated every alert", func(ctx context.Context) (bool, error) {
		result, err := p.Rules(ctx, nil)
		if err != nil {
			return false, fmt.Errorf("ask for the rules: %w", err)
		}
		seen := 0
		for _, group := range result.Groups {
			for _, r := range group.Rules {
				alert, ok := r.(prometheusv1.AlertingRule)
				if !ok {
					return false, fmt.Errorf("%T is no alert", r)
				}
				if alert.Health != prometheusv1.RuleHealthGood {
					return false, fmt.Errorf("%s: %s %s", alert.Name, alert.Health, alert.LastError)
				}
				// Both programs run, and one operator leads.
				switch alert.Name {
				case "DormouseOperatorDown", "DormouseOperatorWithoutLeader", "DormouseResolverDown":
					if alert.State != "inactive" {
						return false, fmt.Errorf("%s is %s", alert.Name, alert.State)
					}
				}
				seen++
			}
		}
		if seen != len(want) {
			return false, fmt.Errorf("%d alerts are evaluated, want %d", seen, len(want))
		}
		return true, nil
	})
	if err != nil {
		t.Error(err)
	}
}
