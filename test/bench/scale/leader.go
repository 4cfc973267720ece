package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"dormouse.dev/dormouse/test/bench/process"
)

const (
	standbyName    = "operator-standby"
	standbyAddress = "127.0.0.1:8081"
	// callEvery is how far apart wake calls are that are made while the leader changes.
	callEvery = 50 * time.Millisecond
	// idleFor is how long a leader's queues must be empty.
	idleFor = 2 * time.Second
)

// handover is a change of the leader.
type handover struct {
	// Elected is from when the leader is told to end until the other replica leads, and Done until that
	// has no more to do.
	Elected float64 `json:"elected_seconds"`
	Done    float64 `json:"done_seconds"`
	// Answer is how long wake calls take at the new leader meanwhile, and Failed how many fail.
	Calls  int       `json:"wake_calls"`
	Failed int       `json:"wake_calls_failed"`
	Answer quantiles `json:"wake_call_answer_ms"`
}

// operatorProgram is a replica of the operator, as config/operator has it.
func (c *cluster) operatorProgram(name, address string) *program {
	return &program{
		name: name, as: operatorName, path: filepath.Join(c.bin, "scale", operatorName),
		args: []string{
			"--listen=" + address, "--leader-elect", "--token-file=" + c.tokenFile(operatorName), fmt.Sprintf("--resolver-port=%d", resolverPort),
			"--outbound-networks=" + answersNetwork,
		},
		env: []string{
			"KUBECONFIG=" + c.kubeconfig(operatorName), "POD_NAMESPACE=" + systemNamespace, "POD_NAME=" + name, "SENTRY_DSN=", "GOMEMLIMIT=900MiB", "GOGC=50",
		},
	}
}

// startStandby starts another replica.
func (c *cluster) startStandby(ctx context.Context) error {
	c.ready[standbyName] = "http://" + standbyAddress + "/readyz"
	if err := c.add(ctx, c.operatorProgram(standbyName, standbyAddress)); err != nil {
		return err
	}
	return c.await(ctx, standbyName)
}

// handOver ends the leader while services are woken, if there are any.
func (c *cluster) handOver(ctx context.Context, s *services) (f handover, err error) {
	calling, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer stop()
	var answers []time.Duration
	if s != nil {
		w, err := c.newWaker()
		if err != nil {
			return f, err
		}
		group.Go(func() {
			for i := 0; wait(calling, callEvery) == nil; i = (i + 1) % s.count {
				began := time.Now()
				if err := w.call(ctx, standbyAddress, keyOf(i)); err != nil {
					f.Failed++
				}
				answers = append(answers, time.Since(began))
			}
		})
	}
	began := time.Now()
	if err := c.program(operatorName).stop(); err != nil {
		return f, err
	}
	if f.Elected, f.Done, err = c.awaitLeader(ctx, standbyAddress, began); err != nil {
		return f, err
	}
	stop()
	group.Wait()
	f.Calls, f.Answer = len(answers), quantilesOf(answers)
	return f, nil
}

// succeed makes the standby the operator.
func (c *cluster) succeed() {
	var left []*program
	for _, p := range c.programs {
		switch p.name {
		case operatorName:
			continue
		case standbyName:
			p.name = operatorName
		}
		left = append(left, p)
	}
	c.programs, c.address = left, standbyAddress
	c.ready[operatorName] = c.ready[standbyName]
}

// awaitLeader waits until a replica leads and has no more to do, and gives both in seconds since a
// time.
func (c *cluster) awaitLeader(ctx context.Context, address string, began time.Time) (elected, done float64, err error) {
	var busy time.Time
	err = process.Until(ctx, phaseTime, "there is a leader that has no more to do", func() (bool, error) {
		if err := c.alive(ctx); err != nil {
			return false, err
		}
		families, err := c.metrics(ctx, address)
		if err != nil {
			return false, err
		}
		now := time.Now()
		if sum(families["leader_election_master_status"]) == 0 {
			return false, nil
		}
		if elected == 0 {
			elected, busy = now.Sub(began).Seconds(), now
		}
		if sum(families["workqueue_depth"]) > 0 {
			busy = now
		}
		return now.Sub(busy) > idleFor, nil
	})
	return rounded(elected), rounded(busy.Sub(began).Seconds()), err
}

// metrics reads a program's metrics.
func (c *cluster) metrics(ctx context.Context, address string) (_ map[string]*dto.MetricFamily, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("build a request: %w", err)
	}
	res, err := c.web.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(res.Body)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	return families, nil
}

func sum(family *dto.MetricFamily) float64 {
	total := 0.0
	for _, m := range family.GetMetric() {
		total += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return total
}
