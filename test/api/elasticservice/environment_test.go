package elasticservice_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/test/api/fixture"
	"dormouse.dev/dormouse/test/sandbox"
	"dormouse.dev/dormouse/test/sentrysink"
)

// Names out of config/.
const (
	resolverAccount = "dormouse-resolver"
	resolverApp     = "dormouse-resolver"
)

// podName is what an operator's Pod is called.
const podName = "operator-pod"

// startTimeout bounds what happens before the first test.
const startTimeout = time.Minute

// environment is the cluster around the tests: two operators as in production,
// and two resolvers.
type environment struct {
	config    *rest.Config
	client    client.WithWatch
	dir       string
	operators []*fixture.Operator
	resolvers *resolverFleet
	// sentry takes what the operators report.
	sentry *sentrysink.Sink
	// cleanup outlives each test.
	cleanup context.Context
}

func startEnvironment(ctx context.Context, config *rest.Config, binary string) (_ *environment, err error) {
	if binary == "" {
		return nil, errors.New("no operator was built")
	}
	scheme, err := fixture.Scheme()
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	e := &environment{cleanup: ctx, config: config, dir: filepath.Dir(binary), sentry: sentrysink.Start()}
	if e.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	ready, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := fixture.Install(ready, e.client, "namespace", "sidecar"); err != nil {
		return nil, err
	}
	if err := fixture.InstallWith(ready, e.client, "rbac", "keda"); err != nil {
		return nil, err
	}
	access, err := fixture.WriteAccess(ready, config, e.client, e.dir, nil)
	if err != nil {
		return nil, err
	}
	if e.resolvers, err = startResolvers(ctx, config, e.client, access.Token); err != nil {
		return nil, err
	}
	for i := range 2 {
		o := &fixture.Operator{
			Binary: binary, Access: access, Address: fmt.Sprintf("127.0.0.1:%d", 8080+i), PodName: podName,
			LogFile: filepath.Join(e.dir, fmt.Sprintf("operator-%d.log", i)), SentryDSN: e.sentry.DSN(),
			Args: []string{
				fmt.Sprintf("--resolver-port=%d", resolverPort),
				"--resolver-selector=" + fixture.NameLabel + "=" + resolverApp, "--resolver-service-account=" + resolverAccount,
				"--outbound-networks=" + sandbox.Network,
			},
		}
		e.operators = append(e.operators, o)
		if err := o.Start(ctx); err != nil {
			return nil, err
		}
	}
	for _, o := range e.operators {
		if err := o.WaitReady(ready); err != nil {
			return nil, errors.Join(err, e.stop(true))
		}
	}
	return e, nil
}

// stop ends the operators, and judges their logs: a data race or a panic fails
// the tests though none of them saw it.
func (e *environment) stop(failed bool) error {
	var errs []error
	for _, o := range e.operators {
		errs = append(errs, o.Stop())
	}
	e.sentry.Close()
	errs = append(errs, e.resolvers.stop())
	for _, o := range e.operators {
		errs = append(errs, o.Check(failed))
	}
	return errors.Join(errs...)
}

// setReady makes a Pod ready, or not.
func (e *environment) setReady(t *testing.T, pod *corev1.Pod, ready corev1.ConditionStatus) {
	t.Helper()
	original := pod.DeepCopy()
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	if err := e.client.Status().Patch(e.cleanup, pod, client.MergeFrom(original)); err != nil {
		t.Fatalf("write the status of Pod %s: %v", pod.Name, err)
	}
}
