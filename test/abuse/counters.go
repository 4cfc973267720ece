package abuse

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strconv"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Counters are what the operator says of itself.
type Counters struct {
	// Answered are the wake calls by code, and Refused the requests that its
	// server refused unread.
	Answered, Refused map[int]int
	// RSS is its resident memory in bytes.
	RSS uint64
}

// ReadCounters scrapes an operator.
func ReadCounters(ctx context.Context, address string) (Counters, error) {
	c := Counters{Answered: map[int]int{}, Refused: map[int]int{}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return c, fmt.Errorf("scrape the operator: %w", err)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return c, fmt.Errorf("scrape the operator: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(res.Body)
	if err != nil {
		return c, fmt.Errorf("read the operator's metrics: %w", err)
	}
	for name, into := range map[string]map[int]int{"dormouse_wake_calls_total": c.Answered, "dormouse_http_refused_total": c.Refused} {
		for _, m := range families[name].GetMetric() {
			code, err := strconv.Atoi(m.GetLabel()[0].GetValue())
			if err != nil {
				return c, fmt.Errorf("read %s: %w", name, err)
			}
			into[code] = int(m.GetCounter().GetValue())
		}
	}
	c.RSS = gauge(families["process_resident_memory_bytes"])
	if c.RSS == 0 {
		return c, fmt.Errorf("read the operator's metrics: process_resident_memory_bytes is missing")
	}
	return c, nil
}

func gauge(family *dto.MetricFamily) uint64 {
	for _, m := range family.GetMetric() {
		return uint64(m.GetGauge().GetValue())
	}
	return 0
}

// minus is what was counted since.
func (c Counters) minus(before Counters) Counters {
	return Counters{Answered: subtract(c.Answered, before.Answered), Refused: subtract(c.Refused, before.Refused)}
}

func subtract(after, before map[int]int) map[int]int {
	left := map[int]int{}
	for code, n := range after {
		if n -= before[code]; n != 0 {
			left[code] = n
		}
	}
	return left
}

// equal says how the counters differ from what they should be.
func (c Counters) equal(want Counters) error {
	if !maps.Equal(c.Answered, want.Answered) || !maps.Equal(c.Refused, want.Refused) {
		return fmt.Errorf("the operator counted %v wake calls and %v refused requests by code; it got %v and %v",
			c.Answered, c.Refused, want.Answered, want.Refused)
	}
	return nil
}
