package env

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Metrics sums the series of a counter or gauge that have the labels, and counts what a
// histogram or summary observed, for each running pod of one of Dormouse's Deployments.
// A pod without such a series is left out.
func (e *Env) Metrics(ctx context.Context, app, name string, labels map[string]string) (map[string]float64, error) {
	pods, err := e.running(ctx, app)
	if err != nil {
		return nil, err
	}
	sums := map[string]float64{}
	for _, pod := range pods {
		families, err := scrapePod(ctx, pod)
		if err != nil {
			return nil, err
		}
		for _, m := range families[name].GetMetric() {
			if hasLabels(m, labels) {
				sums[pod.Name] += m.GetCounter().GetValue() + m.GetGauge().GetValue() +
					float64(m.GetHistogram().GetSampleCount()+m.GetSummary().GetSampleCount())
			}
		}
	}
	return sums, nil
}

// Process is what a program's process says of itself, in bytes and seconds.
type Process struct {
	Pod string
	// Started tells one process from the next in the same pod.
	Started, Resident, Heap, Goroutines, FDs float64
}

// Processes asks each running pod of one of Dormouse's Deployments, at once. A
// pod that doesn't answer is left out.
func (e *Env) Processes(ctx context.Context, app string) ([]Process, error) {
	pods, err := e.running(ctx, app)
	if err != nil {
		return nil, err
	}
	answers := make([]*Process, len(pods))
	var group sync.WaitGroup
	for i, pod := range pods {
		group.Go(func() {
			families, err := scrapePod(ctx, pod)
			if err != nil {
				return
			}
			value := func(name string) (sum float64) {
				for _, m := range families[name].GetMetric() {
					sum += m.GetGauge().GetValue()
				}
				return sum
			}
			answers[i] = &Process{
				Pod: pod.Name, Started: value("process_start_time_seconds"),
				Resident: value("process_resident_memory_bytes"), Heap: value("go_memstats_heap_alloc_bytes"),
				Goroutines: value("go_goroutines"), FDs: value("process_open_fds"),
			}
		})
	}
	group.Wait()
	var processes []Process
	for _, p := range answers {
		if p != nil {
			processes = append(processes, *p)
		}
	}
	return processes, nil
}

// running are the pods of one of Dormouse's Deployments that run and aren't
// about to end.
func (e *Env) running(ctx context.Context, app string) ([]corev1.Pod, error) {
	var pods corev1.PodList
	if err := e.Client.List(ctx, &pods, client.InNamespace(SystemNamespace), client.MatchingLabels{"app.kubernetes.io/name": app}); err != nil {
		return nil, fmt.Errorf("list pods of %s: %w", app, err)
	}
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
		return p.Status.PodIP == "" || !p.DeletionTimestamp.IsZero() || p.Status.Phase != corev1.PodRunning
	}), nil
}

func scrapePod(ctx context.Context, pod corev1.Pod) (map[string]*dto.MetricFamily, error) {
	families, err := scrape(ctx, net.JoinHostPort(pod.Status.PodIP, "8080"))
	if err != nil {
		return nil, fmt.Errorf("metrics of %s: %w", pod.Name, err)
	}
	return families, nil
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
