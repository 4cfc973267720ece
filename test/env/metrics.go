package env

import (
	"context"
	"fmt"
	"net"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Metrics sums the series of a counter or gauge that have the labels, and counts
// what a histogram observed, for each running pod of one of Dormouse's Deployments. A pod without such a series is left out.
func (e *Env) Metrics(ctx context.Context, app, name string, labels map[string]string) (map[string]float64, error) {
	var pods corev1.PodList
	if err := e.Client.List(ctx, &pods, client.InNamespace(SystemNamespace), client.MatchingLabels{"app.kubernetes.io/name": app}); err != nil {
		return nil, fmt.Errorf("list pods of %s: %w", app, err)
	}
	sums := map[string]float64{}
	for _, pod := range pods.Items {
		if pod.Status.PodIP == "" || !pod.DeletionTimestamp.IsZero() || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		families, err := scrape(ctx, net.JoinHostPort(pod.Status.PodIP, "8080"))
		if err != nil {
			return nil, fmt.Errorf("metrics of %s: %w", pod.Name, err)
		}
		for _, m := range families[name].GetMetric() {
			if hasLabels(m, labels) {
				sums[pod.Name] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sums, nil
}

func scrape(ctx context.Context, address string) (map[string]*dto.MetricFamily, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("build the request: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("scrape: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("scrape: answered %s", res.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(res.Body)
	if err != nil {
		return nil, fmt.Errorf("parse metrics: %w", err)
	}
	return families, nil
}

func hasLabels(m *dto.Metric, labels map[string]string) bool {
	found := 0
	for _, l := range m.GetLabel() {
		if want, ok := labels[l.GetName()]; ok {
			if want != l.GetValue() {
				return false
			}
			found++
		}
	}
	return found == len(labels)
}
