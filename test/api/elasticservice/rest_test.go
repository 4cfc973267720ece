package elasticservice_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"dormouse.dev/dormouse/test/api/fixture"
)

// asked is how often the API server was asked since it started, by verb and resource. What it
// asks itself, leases and watches are left out.
func asked(ctx context.Context, c kubernetes.Interface) (map[string]int, error) {
	text, err := c.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the API server's metrics: %w", err)
	}
	counts := map[string]int{}
	for line := range bytes.Lines(text) {
		series, value, ok := strings.Cut(strings.TrimSpace(string(line)), "} ")
		labels, found := strings.CutPrefix(series, "apiserver_request_total{")
		if !ok || !found {
			continue
		}
		of := map[string]string{}
		for l := range strings.SplitSeq(labels, ",") {
			name, v, _ := strings.Cut(l, "=")
			of[name] = strings.Trim(v, `"`)
		}
		writes := of["verb"] != "GET" && of["verb"] != "LIST"
		ours := of["group"] == "dormouse.dev" || of["group"] == "apps" || of["resource"] == "pods" || of["resource"] == "events" ||
			writes && (of["resource"] == "endpointslices" || of["resource"] == "services")
		if !ours || of["verb"] == "WATCH" {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("read the API server's metric %s: %w", line, err)
		}
		counts[of["verb"]+" "+of["resource"]] += int(n)
	}
	return counts, nil
}

// Services that sleep and that nobody wakes cost the API server nothing. Nothing else may run
// meanwhile, so that it doesn't run in parallel.
func TestSleepingServicesCostTheAPIServerNothing(t *testing.T) {
	w := newWorld(t)
	for i := range 5 {
		w.asleep(fmt.Sprintf("lobby-%d", i))
	}
	c, err := kubernetes.NewForConfig(cluster.config)
	if err != nil {
		t.Fatal(err)
	}
	var at map[string]int
	atRest := func(ctx context.Context) error {
		now, err := asked(ctx, c)
		before := at
		at = now
		if err == nil && !maps.Equal(before, now) {
			err = fmt.Errorf("it was asked %v, and before %v", now, before)
		}
		return err
	}
	fixture.Eventually(t, promptly, "the operators come to rest", atRest)
	if len(at) == 0 {
		t.Fatal("the API server doesn't count what it is asked")
	}
	fixture.Consistently(t, 12*time.Second, "the API server is asked nothing", atRest)
}

// garbagePercent is how much garbage an operator lets be, in percent of what lives in its heap.
func garbagePercent(ctx context.Context, o *fixture.Operator) (float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.Address+"/metrics", nil)
	if err != nil {
		return 0, fmt.Errorf("build a request: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, fmt.Errorf("ask the operator for its metrics: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "go_gc_gogc_percent "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, errors.Join(lines.Err(), errors.New("the operator doesn't say how much garbage it lets be"))
}

// An operator that has little to do lets little garbage be, so that it takes less memory. Nothing else may run
// meanwhile, so that it doesn't run in parallel.
func TestAnOperatorAtRestLetsLittleGarbageBe(t *testing.T) {
	// Each question makes some, and there is rest after ten seconds without.
	const every, tries = 15 * time.Second, 4
	for _, o := range cluster.operators {
		for try := 1; ; try++ {
			percent, err := garbagePercent(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if percent < 100 {
				break
			}
			if try == tries {
				t.Fatalf("operator %s lets %v %% of garbage be at rest, as Go does by default", o.Address, percent)
			}
			<-time.After(every)
		}
	}
}
