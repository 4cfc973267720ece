package trigger

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/outbound"
	"dormouse.dev/dormouse/operator/internal/promquery"
)

// Prometheus answers queries. The answer is one to a question that was begun at a time or later.
type Prometheus interface {
	Ask(ctx context.Context, q promquery.Query, since time.Time) (promquery.Answer, error)
}

const (
	// minUptime and maxUptime bound how far back uptimeFilter looks. A failure begins the time
	// of idleness anew, so more than that is watched by asking again and again.
	minUptime = time.Minute
	maxUptime = 5 * time.Minute
	// uptimeStep is how finely it looks.
	uptimeStep = 15 * time.Second
	// maxSampleAge is how old a target's last sample may be: one scrape a minute, and a late one.
	maxSampleAge = 90 * time.Second
	// prometheusTime bounds how long all answers of servers take together, with the time that
	// they wait for their turn.
	prometheusTime = 40 * time.Second
)

// uptimeQuery is 1 if one of the targets was up, and scraped, all the time. Prometheus goes on with
// a target's last sample for five minutes when it was away itself, so the samples must be new.
func uptimeQuery(filter string, window time.Duration) string {
	return fmt.Sprintf("min_over_time((max((up{%[1]s} == 1) and (time() - timestamp(up{%[1]s}) < %.0[2]f)) or vector(0))[%.0[3]fs:%.0[4]fs])",
		filter, maxSampleAge.Seconds(), window.Seconds(), uptimeStep.Seconds())
}

// askPrometheus asks a server for a trigger's number. Its age is that of the older answer. Both
// questions are asked side by side: one after the other, a slow server's first answer would be
// too old for a sleep when the second comes.
func (p *Poller) askPrometheus(ctx context.Context, namespace string, s Service, t *v1alpha1.PrometheusTrigger, since time.Time) (promquery.Answer, error) {
	q := promquery.Query{Namespace: namespace, Server: t.ServerAddress, TLS: t.TLS, Auth: t.Auth, PromQL: t.Query}
	if t.UptimeFilter == "" {
		return p.prometheus.Ask(ctx, q, since)
	}
	window := min(max(s.SleepAfter.Truncate(time.Second), minUptime), maxUptime)
	var uptime promquery.Answer
	var uptimeErr error
	var asking sync.WaitGroup
	asking.Go(func() {
		defer utilruntime.HandleCrash()
		up := q
		up.PromQL = uptimeQuery(t.UptimeFilter, window)
		uptime, uptimeErr = p.prometheus.Ask(ctx, up, since)
	})
	answer, err := p.prometheus.Ask(ctx, q, since)
	asking.Wait()
	switch {
	case uptimeErr != nil:
		return promquery.Answer{}, fmt.Errorf("uptimeFilter: %w", uptimeErr)
	case uptime.Number < 1:
		return promquery.Answer{}, outbound.Failure(outbound.BadAnswer,
			"What uptimeFilter selects was not up all the last %s, so the query may say too little: see why Prometheus didn't scrape it, which it must once a minute, or correct uptimeFilter", window)
	case err == nil && uptime.At.Before(answer.At):
		answer.At = uptime.At
	}
	return answer, err
}

// thresholdOf is the number from which on a trigger is busy.
func thresholdOf(t v1alpha1.Trigger) (float64, error) {
	if t.HTTP != nil {
		return float64(t.HTTP.Threshold), nil
	}
	threshold, err := strconv.ParseFloat(t.Prometheus.Threshold, 64)
	if err != nil {
		return 0, fmt.Errorf("threshold %q is no number", t.Prometheus.Threshold)
	}
	return threshold, nil
}
