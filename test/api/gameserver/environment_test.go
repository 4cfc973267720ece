package gameserver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/dev/manifests"
	"dormouse.dev/dormouse/test/api/apiserver"
)

// Names out of config/.
const (
	systemNamespace = "dormouse-system"
	operatorAccount = "dormouse-operator"
)

const (
	// startTimeout bounds what happens before the first test.
	startTimeout = 2 * time.Minute
	// promptly is for what happens at once, on a machine that is slow.
	promptly = 15 * time.Second
	// stopTimeout is how long an operator has to end by itself.
	stopTimeout = 15 * time.Second
	// pollInterval is how often is looked.
	pollInterval = 10 * time.Millisecond
)

// environment is two replicas of the operator before a real API server.
type environment struct {
	config    *rest.Config
	client    client.WithWatch
	operators []*operator
}

// operator is one replica's process, and its Pod as the API server knows it.
type operator struct {
	pod     *corev1.Pod
	address string
	token   string
	logFile string
	process *exec.Cmd
	ended   chan error
}

func startEnvironment(ctx context.Context, config *rest.Config, binary string) (*environment, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("build the scheme: %w", err)
	}
	config.QPS = -1
	e := &environment{config: config}
	var err error
	if e.client, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	ready, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, part := range []string{"namespace", "rbac", "sidecar"} {
		objects, err := manifests.Build(apiserver.Path("config", part), nil)
		if err != nil {
			return nil, err
		}
		if err := manifests.Apply(ready, e.client, "tester", objects, nil); err != nil {
			return nil, err
		}
	}
	// All replicas answer on one port, as pods do.
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.2:0")
	if err != nil {
		return nil, fmt.Errorf("find a port: %w", err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	if err := ln.Close(); err != nil {
		return nil, fmt.Errorf("find a port: %w", err)
	}
	for i := range 2 {
		o, err := e.startOperator(ready, ctx, binary, fmt.Sprintf("operator-%d", i), fmt.Sprintf("127.0.0.%d", 2+i), port)
		if err != nil {
			return nil, errors.Join(err, e.stop(true))
		}
		e.operators = append(e.operators, o)
	}
	for _, o := range e.operators {
		if err := o.waitReady(ready); err != nil {
			return nil, errors.Join(err, e.stop(true))
		}
	}
	return e, nil
}

// startOperator starts a replica, which lives as long as life.
func (e *environment) startOperator(ctx, life context.Context, binary, name, ip string, port int) (*operator, error) {
	dir := filepath.Join(filepath.Dir(binary), name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the operator's directory: %w", err)
	}
	o := &operator{address: fmt.Sprintf("%s:%d", ip, port), logFile: filepath.Join(dir, "log")}
	var err error
	if o.pod, err = e.operatorPod(ctx, name, ip); err != nil {
		return nil, err
	}
	own, err := e.token(ctx, systemNamespace, operatorAccount, "", o.pod)
	if err != nil {
		return nil, err
	}
	if o.token, err = e.token(ctx, systemNamespace, operatorAccount, v1alpha1.TokenAudience, o.pod); err != nil {
		return nil, err
	}
	access := clientcmdapi.NewConfig()
	access.Clusters[name] = &clientcmdapi.Cluster{Server: e.config.Host, CertificateAuthorityData: e.config.CAData}
	access.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: own}
	access.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	access.CurrentContext = name
	kubeconfig, tokenFile := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "token")
	if err := clientcmd.WriteToFile(*access, kubeconfig); err != nil {
		return nil, fmt.Errorf("write the operator's kubeconfig: %w", err)
	}
	if err := os.WriteFile(tokenFile, []byte(o.token), 0o600); err != nil {
		return nil, fmt.Errorf("write the operator's token: %w", err)
	}
	log, err := os.Create(o.logFile)
	if err != nil {
		return nil, fmt.Errorf("open the operator's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	o.process = exec.CommandContext(life, binary, "--listen="+o.address, "--leader-elect", "--token-file="+tokenFile)
	o.process.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "POD_NAMESPACE="+systemNamespace, "POD_NAME="+name, "SENTRY_DSN=")
	o.process.Stdout, o.process.Stderr = log, log
	if err := o.process.Start(); err != nil {
		return nil, fmt.Errorf("start the operator: %w", err)
	}
	o.ended = make(chan error, 1)
	go func() { o.ended <- o.process.Wait() }()
	return o, nil
}

// operatorPod is a replica's Pod, which runs as far as the API server knows.
func (e *environment) operatorPod(ctx context.Context, name, ip string) (*corev1.Pod, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: name, Labels: map[string]string{"app.kubernetes.io/name": operatorAccount}},
		Spec: corev1.PodSpec{
			ServiceAccountName: operatorAccount, NodeName: "node-1",
			// As the namespace's Pod Security wants it.
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{Name: "operator", Image: "none", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}}},
		},
	}
	if err := e.client.Create(ctx, pod); err != nil {
		return nil, fmt.Errorf("create Pod %s: %w", name, err)
	}
	original := pod.DeepCopy()
	pod.Status = corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}
	if err := e.client.Status().Patch(ctx, pod, client.MergeFrom(original)); err != nil {
		return nil, fmt.Errorf("write the status of Pod %s: %w", name, err)
	}
	return pod, nil
}

// token asks for a token of a service account. An empty audience is the API
// server's; pod binds the token to it and may be nil.
func (e *environment) token(ctx context.Context, namespace, account, audience string, pod *corev1.Pod) (string, error) {
	request := &authenticationv1.TokenRequest{}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	if err := e.client.SubResource("token").Create(ctx, of, request); err != nil {
		return "", fmt.Errorf("ask for a token of %s/%s: %w", namespace, account, err)
	}
	return request.Status.Token, nil
}

func (e *environment) stop(failed bool) error {
	var errs []error
	for _, o := range e.operators {
		errs = append(errs, o.stop())
	}
	for _, o := range e.operators {
		errs = append(errs, o.judge(failed))
	}
	return errors.Join(errs...)
}

// waitReady waits until /readyz answers 200.
func (o *operator) waitReady(ctx context.Context) error {
	return poll(ctx, func() error {
		select {
		case err := <-o.ended:
			o.ended <- err
			return fmt.Errorf("the operator ended: %w", err)
		default:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+o.address+"/readyz", nil)
		if err != nil {
			return fmt.Errorf("build a request: %w", err)
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return fmt.Errorf("ask the operator whether it is ready: %w", err)
		}
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("the operator at %s is not ready: %s", o.address, res.Status)
		}
		return nil
	})
}

// stop ends the process as Kubernetes does.
func (o *operator) stop() error {
	if err := o.process.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("stop the operator: %w", err)
	}
	select {
	case err := <-o.ended:
		o.ended <- err
		if err != nil {
			return fmt.Errorf("the operator at %s ended: %w", o.address, err)
		}
		return nil
	case <-time.After(stopTimeout):
		return errors.Join(fmt.Errorf("the operator at %s didn't end within %s of SIGTERM", o.address, stopTimeout), o.process.Process.Kill())
	}
}

// judge reads the log: it must tell of no data race, no panic, no missing right
// and no token.
func (o *operator) judge(failed bool) error {
	log, err := os.ReadFile(o.logFile)
	if err != nil {
		return fmt.Errorf("read the operator's log: %w", err)
	}
	var errs []error
	for _, text := range []string{"WARNING: DATA RACE", "panic", "is forbidden: User", "eyJ"} {
		if bytes.Contains(log, []byte(text)) {
			errs = append(errs, fmt.Errorf("the log of the operator at %s has %q", o.address, text))
		}
	}
	if failed || len(errs) > 0 {
		tail := log[max(0, len(log)-32<<10):]
		fmt.Fprintf(os.Stderr, "--- log of the operator at %s, its end ---\n%s\n--- end of the log ---\n", o.address, strings.TrimSpace(string(tail)))
	}
	return errors.Join(errs...)
}

// poll calls check until it returns nil or ctx ends.
func poll(ctx context.Context, check func() error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-ticker.C:
		}
	}
}
