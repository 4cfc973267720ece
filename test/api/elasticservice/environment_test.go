package elasticservice_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/dev/manifests"
	"dormouse.dev/dormouse/test/api/apiserver"
	"dormouse.dev/dormouse/test/sentrysink"
)

// Names out of config/.
const (
	systemNamespace = "dormouse-system"
	operatorAccount = "dormouse-operator"
	resolverAccount = "dormouse-resolver"
	resolverLabel   = "app.kubernetes.io/name"
	resolverApp     = "dormouse-resolver"
)

// startTimeout bounds what happens before the first test.
const startTimeout = time.Minute

// environment is the cluster around the tests: two operators as in production,
// and two resolvers.
type environment struct {
	config    *rest.Config
	client    client.WithWatch
	dir       string
	operators []*operator
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
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("build the scheme: %w", err)
	}
	config.QPS = -1
	e := &environment{cleanup: ctx, config: config, dir: filepath.Dir(binary), sentry: sentrysink.Start()}
	if e.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	ready, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := e.install(ready); err != nil {
		return nil, err
	}
	kubeconfig, tokenFile, err := e.writeAccess(ready)
	if err != nil {
		return nil, err
	}
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		return nil, fmt.Errorf("read the operator's token: %w", err)
	}
	if e.resolvers, err = startResolvers(ctx, config, e.client, string(token)); err != nil {
		return nil, err
	}
	for i := range 2 {
		o := &operator{
			binary: binary, kubeconfig: kubeconfig, tokenFile: tokenFile,
			address: fmt.Sprintf("127.0.0.1:%d", 8080+i),
			logFile: filepath.Join(e.dir, fmt.Sprintf("operator-%d.log", i)), sentryDSN: e.sentry.DSN(),
		}
		e.operators = append(e.operators, o)
		if err := o.start(ctx); err != nil {
			return nil, err
		}
	}
	for _, o := range e.operators {
		if err := o.waitReady(ready); err != nil {
			return nil, errors.Join(err, e.stop(true))
		}
	}
	return e, nil
}

// install applies the namespace, the accounts and the rights that config/ has.
func (e *environment) install(ctx context.Context) error {
	for _, part := range []string{"namespace", "rbac", "sidecar"} {
		objects, err := manifests.Build(apiserver.Path("config", part), nil)
		if err != nil {
			return err
		}
		if err := manifests.Apply(ctx, e.client, "tester", objects, nil); err != nil {
			return err
		}
	}
	return nil
}

// stop ends the operators, and judges their logs: a data race or a panic fails
// the tests though none of them saw it.
func (e *environment) stop(failed bool) error {
	var errs []error
	for _, o := range e.operators {
		errs = append(errs, o.stop())
	}
	e.sentry.Close()
	errs = append(errs, e.resolvers.stop())
	for _, o := range e.operators {
		errs = append(errs, o.judge(failed))
	}
	return errors.Join(errs...)
}

// pod makes a Pod in the system namespace that runs and is ready as far as the
// API server knows.
func (e *environment) pod(ctx context.Context, name string, labels map[string]string, account, node string, addresses ...string) (*corev1.Pod, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: name, Labels: labels},
		Spec: corev1.PodSpec{
			ServiceAccountName: account,
			NodeName:           node,
			// As the namespace's Pod Security wants it.
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{Name: "main", Image: "none", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}}},
		},
	}
	if err := e.client.Create(ctx, pod); err != nil {
		return nil, fmt.Errorf("create Pod %s: %w", name, err)
	}
	original := pod.DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for _, a := range addresses {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: a})
	}
	if len(addresses) > 0 {
		pod.Status.PodIP = addresses[0]
	}
	if err := e.client.Status().Patch(ctx, pod, client.MergeFrom(original)); err != nil {
		return nil, fmt.Errorf("write the status of Pod %s: %w", name, err)
	}
	return pod, nil
}

// setReady says whether a Pod is ready.
func (e *environment) setReady(t *testing.T, pod *corev1.Pod, ready corev1.ConditionStatus) {
	t.Helper()
	original := pod.DeepCopy()
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	if err := e.client.Status().Patch(e.cleanup, pod, client.MergeFrom(original)); err != nil {
		t.Fatalf("write the status of Pod %s: %v", pod.Name, err)
	}
}
