package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"dormouse.dev/dormouse/test/bench/process"
)

// Addresses of the operator's replicas.
const (
	OperatorAddress = "127.0.0.1:8080"
	StandbyAddress  = "127.0.0.1:8081"
)

const (
	// idleFor is how long a leader's queues must be empty.
	idleFor = 2 * time.Second
	// leaderTime bounds the wait for a leader.
	leaderTime = 40 * time.Minute
)

// StartOperator starts a replica as config/operator does, with its own account's rights.
func (c *Cluster) StartOperator(ctx context.Context) error {
	if err := c.writeAccess(ctx, OperatorName, operatorAccount, nil); err != nil {
		return err
	}
	if err := c.add(ctx, c.operatorProgram(OperatorName, OperatorAddress)); err != nil {
		return err
	}
	return c.await(ctx, OperatorName)
}

// operatorProgram is a replica of the operator, as config/operator has it.
func (c *Cluster) operatorProgram(name, address string) *program {
	return &program{
		name: name, as: OperatorName, path: filepath.Join(c.bin, "scale", OperatorName),
		args: []string{
			"--listen=" + address, "--leader-elect", "--token-file=" + c.TokenFile(OperatorName), fmt.Sprintf("--resolver-port=%d", resolverPort),
			"--outbound-networks=" + c.options.OutboundNetworks,
		},
		env: []string{
			"KUBECONFIG=" + c.kubeconfig(OperatorName), "POD_NAMESPACE=" + systemNamespace, "POD_NAME=" + name, "SENTRY_DSN=", "GOMEMLIMIT=900MiB", "GOGC=50",
		},
	}
}

// StartStandby starts another replica.
func (c *Cluster) StartStandby(ctx context.Context) error {
	c.ready[StandbyName] = "http://" + StandbyAddress + "/readyz"
	if err := c.add(ctx, c.operatorProgram(StandbyName, StandbyAddress)); err != nil {
		return err
	}
	return c.await(ctx, StandbyName)
}

// StopLeader has the operator give up its lease and end.
func (c *Cluster) StopLeader() error { return c.program(OperatorName).stop() }

// Succeed makes the standby the operator.
func (c *Cluster) Succeed() {
	var left []*program
	for _, p := range c.programs {
		switch p.name {
		case OperatorName:
			continue
		case StandbyName:
			p.name = OperatorName
		}
		left = append(left, p)
	}
	c.programs, c.Address = left, StandbyAddress
	c.ready[OperatorName] = c.ready[StandbyName]
}

// AwaitLeader waits until a replica leads and has no more to do, and gives when since a time.
func (c *Cluster) AwaitLeader(ctx context.Context, address string, began time.Time) (elected, done time.Duration, err error) {
	var busy time.Time
	err = process.Until(ctx, leaderTime, "there is a leader that has no more to do", func() (bool, error) {
		if err := c.Alive(ctx); err != nil {
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
			elected, busy = now.Sub(began), now
		}
		if sum(families["workqueue_depth"]) > 0 {
			busy = now
		}
		return now.Sub(busy) > idleFor, nil
	})
	return elected, busy.Sub(began), err
}

// metrics reads a program's metrics.
func (c *Cluster) metrics(ctx context.Context, address string) (_ map[string]*dto.MetricFamily, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("build a request: %w", err)
	}
	res, err := c.Web.Do(req)
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
