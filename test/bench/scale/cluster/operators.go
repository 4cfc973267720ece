package cluster

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/bench/process"
)

// OperatorAddress is the first replica's, and NextAddress the next one's. They take turns.
const (
	OperatorAddress = "127.0.0.1:8080"
	NextAddress     = "127.0.0.1:8081"
)

const (
	// leaseName is the Lease with which the operator's replicas choose a leader.
	leaseName = "operator.dormouse.dev"
	// idleFor is how long a leader's queues must be empty.
	idleFor = 2 * time.Second
	// scrapeEvery is how often the leader is asked: at 10,000 services a scrape takes it 100 ms of a
	// processor.
	scrapeEvery = 5 * time.Second
	// calmFor is how long a standby must have taken little of a processor, and standbyTime bounds the wait
	// for that.
	calmFor     = 3 * time.Second
	standbyTime = 5 * time.Minute
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
			"KUBECONFIG=" + c.kubeconfig(OperatorName), "POD_NAMESPACE=" + systemNamespace, "POD_NAME=" + name, "SENTRY_DSN=", "GOMEMLIMIT=" + c.options.OperatorMemory,
		},
	}
}

// StandbyAddress is that of the replica that doesn't lead.
func (c *Cluster) StandbyAddress() string {
	if c.Address == OperatorAddress {
		return NextAddress
	}
	return OperatorAddress
}

// StartStandby starts another replica, and waits until it has read all that there is: most have been
// there for days when they come to lead.
func (c *Cluster) StartStandby(ctx context.Context) error {
	c.ready[StandbyName] = "http://" + c.StandbyAddress() + "/readyz"
	if err := c.add(ctx, c.operatorProgram(StandbyName, c.StandbyAddress())); err != nil {
		return err
	}
	if err := c.await(ctx, StandbyName); err != nil {
		return err
	}
	var last time.Duration
	return process.UntilEvery(ctx, calmFor, standbyTime, "the standby is calm", func() (bool, error) {
		u, err := c.program(StandbyName).used()
		took := u.Processor - last
		last = u.Processor
		return took < calmFor/10, errors.Join(err, c.Alive(ctx))
	})
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
	c.programs, c.Address = left, c.StandbyAddress()
	c.ready[OperatorName] = c.ready[StandbyName]
}

// AwaitLeader waits until a replica leads and has no more to do, and gives when since a time: when it
// was elected, as its Lease says, and when it was seen, once in five seconds, to have begun its passes and to have
// none in a queue or in a backlog any more, those that are under way included.
func (c *Cluster) AwaitLeader(ctx context.Context, address string, began time.Time) (elected, done time.Duration, err error) {
	err = process.Until(ctx, leaderTime, "there is a leader", func() (bool, error) {
		lease := &coordinationv1.Lease{}
		err := c.Client.Get(ctx, client.ObjectKey{Namespace: systemNamespace, Name: leaseName}, lease)
		if is := lease.Spec; err == nil && ptr.Deref(is.HolderIdentity, "") != "" && is.AcquireTime != nil {
			elected = is.AcquireTime.Sub(began)
		}
		return elected > 0, errors.Join(client.IgnoreNotFound(err), c.Alive(ctx))
	})
	if err != nil {
		return 0, 0, err
	}
	controllers, err := c.controllers(ctx)
	if err != nil {
		return 0, 0, err
	}
	var idle time.Time
	err = process.UntilEvery(ctx, scrapeEvery, leaderTime, "the leader has no more to do", func() (bool, error) {
		is, err := c.passes(ctx, address)
		if err := errors.Join(err, c.Alive(ctx)); err != nil {
			return false, err
		}
		now := time.Now()
		switch {
		case !is.begunBy(controllers) || is.left > 0:
			idle = time.Time{}
		case idle.IsZero():
			idle = now
		}
		return !idle.IsZero() && now.Sub(idle) > idleFor, nil
	})
	return elected, idle.Sub(began), err
}

// passes are those that an operator makes.
type passes struct {
	// left is how many are to be made.
	left float64
	// made is how many were made, by controller.
	made map[string]float64
}

// begunBy reports whether each controller has made a pass: before, a new leader's queues are empty.
func (p passes) begunBy(controllers []string) bool {
	return !slices.ContainsFunc(controllers, func(name string) bool { return p.made[name] == 0 })
}

// controllers are those of which a leader makes first passes, since there is something of their kind.
func (c *Cluster) controllers(ctx context.Context) (names []string, err error) {
	for name, list := range map[string]client.ObjectList{"server": &v1alpha1.ServerList{}, "elasticservice": &v1alpha1.ElasticServiceList{}} {
		if err := c.Client.List(ctx, list, client.Limit(1)); err != nil {
			return nil, fmt.Errorf("look for what a leader has to see to: %w", err)
		}
		if meta.LenList(list) > 0 {
			names = append(names, name)
		}
	}
	return names, nil
}

// passes are the passes of an operator. Its metrics have megabytes, and what it takes to read all of them would be
// missing on the processors that are measured.
func (c *Cluster) passes(ctx context.Context, address string) (_ passes, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return passes{}, fmt.Errorf("build a request: %w", err)
	}
	res, err := c.Web.Do(req)
	if err != nil {
		return passes{}, fmt.Errorf("read metrics: %w", err)
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	return passesIn(res.Body)
}

// passesIn reads the series of a scrape that count passes.
func passesIn(scrape io.Reader) (passes, error) {
	const made = `controller_runtime_reconcile_total{controller="`
	is := passes{made: map[string]float64{}}
	lines := bufio.NewScanner(scrape)
	for lines.Scan() {
		line := lines.Text()
		rest, done := strings.CutPrefix(line, made)
		if !done && !strings.HasPrefix(line, "workqueue_depth{") && !strings.HasPrefix(line, "dormouse_backlog_passes{") {
			continue
		}
		value, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if err != nil {
			return passes{}, fmt.Errorf("read the metric %s: %w", line, err)
		}
		if done {
			controller, _, _ := strings.Cut(rest, `"`)
			is.made[controller] += value
		} else {
			is.left += value
		}
	}
	if err := lines.Err(); err != nil {
		return passes{}, fmt.Errorf("read metrics: %w", err)
	}
	return is, nil
}
