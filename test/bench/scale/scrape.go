package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"dormouse.dev/dormouse/test/bench/scale/cluster"
)

// scrapes is how often metrics are read, and scrapeEvery how far apart: Prometheus scrapes more seldom.
const (
	scrapes     = 5
	scrapeEvery = 5 * time.Second
)

// scrape is what a read of a program's metrics costs.
type scrape struct {
	Bytes int64 `json:"bytes"`
	// Median is that of a few, and Longest the longest of them.
	Median  float64 `json:"median_ms"`
	Longest float64 `json:"longest_ms"`
}

// scrapeOf reads a program's metrics.
func scrapeOf(ctx context.Context, c *cluster.Cluster, address string) (scrape, error) {
	var s scrape
	var took []time.Duration
	for range scrapes {
		if err := wait(ctx, scrapeEvery); err != nil {
			return s, err
		}
		began := time.Now()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
		if err != nil {
			return s, fmt.Errorf("build a request: %w", err)
		}
		res, err := c.Web.Do(req)
		if err != nil {
			return s, fmt.Errorf("read metrics: %w", err)
		}
		s.Bytes, err = io.Copy(io.Discard, res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK {
			return s, fmt.Errorf("read metrics: it answered %s: %w", res.Status, err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	s.Median = rounded(float64(took[len(took)/2]) / float64(time.Millisecond))
	s.Longest = rounded(float64(took[len(took)-1]) / float64(time.Millisecond))
	return s, nil
}
