package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
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
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/dev/devcluster/binaries"
	"dormouse.dev/dormouse/internal/dev/manifests"
	"dormouse.dev/dormouse/test/bench/process"
)

const (
	systemNamespace = "dormouse-system"
	operatorAccount = "dormouse-operator"
	// readyTime is how long the operator may take to be ready.
	readyTime = 2 * time.Minute
)

// cluster is an API server, and one replica of the operator before it.
type cluster struct {
	environment *envtest.Environment
	config      *rest.Config
	client      client.WithWatch
	signingKey  []byte
	dir         string
	operator    *exec.Cmd
	ended       chan error
	address     string
}

// startCluster starts both. stop is to be called whatever comes of it.
func startCluster(ctx context.Context) (_ *cluster, err error) {
	c := &cluster{}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	assets, err := binaries.EnvtestAssets(ctx, "", os.Stderr)
	if err != nil {
		return nil, fmt.Errorf("build the API server: %w", err)
	}
	if c.dir, err = os.MkdirTemp("", "dormouse-bench-report-"); err != nil {
		return nil, fmt.Errorf("make a directory: %w", err)
	}
	say("building the operator")
	binary := filepath.Join(c.dir, "operator")
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./operator")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("build the operator (run this in the project's root): %w", err)
	}
	say("starting the API server")
	c.environment = &envtest.Environment{
		ErrorIfCRDPathMissing: true, CRDDirectoryPaths: []string{filepath.Join("config", "crd", "bases")},
		ControlPlane: envtest.ControlPlane{Etcd: &envtest.Etcd{Path: assets.Etcd}},
	}
	c.environment.ControlPlane.Etcd.Configure().Set("unsafe-no-fsync", "true")
	api := c.environment.ControlPlane.GetAPIServer()
	api.Path = assets.APIServer
	api.Configure().Set("advertise-address", "127.0.0.1").Set("endpoint-reconciler-type", "none")
	if c.config, err = c.environment.Start(); err != nil {
		return nil, fmt.Errorf("start the API server: %w", err)
	}
	c.config.QPS = -1
	// Where envtest puts it.
	if c.signingKey, err = os.ReadFile(filepath.Join(api.CertDir, "sa-signer.key")); err != nil {
		return nil, fmt.Errorf("read the API server's signing key: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("build the scheme: %w", err)
	}
	if c.client, err = client.NewWithWatch(c.config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	for _, part := range []string{"namespace", "rbac", "sidecar"} {
		objects, err := manifests.Build(filepath.Join("config", part), nil)
		if err != nil {
			return nil, err
		}
		if err := manifests.Apply(ctx, c.client, "bench", objects, nil); err != nil {
			return nil, err
		}
	}
	return c, c.startOperator(ctx, binary)
}

func (c *cluster) startOperator(ctx context.Context, binary string) error {
	own, err := c.token(ctx, systemNamespace, operatorAccount, "", nil)
	if err != nil {
		return err
	}
	const name = "bench"
	access := clientcmdapi.NewConfig()
	access.Clusters[name] = &clientcmdapi.Cluster{Server: c.config.Host, CertificateAuthorityData: c.config.CAData}
	access.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: own}
	access.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	access.CurrentContext = name
	kubeconfig := filepath.Join(c.dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*access, kubeconfig); err != nil {
		return fmt.Errorf("write the operator's kubeconfig: %w", err)
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("find a port: %w", err)
	}
	c.address = ln.Addr().String()
	if err := ln.Close(); err != nil {
		return fmt.Errorf("find a port: %w", err)
	}
	log, err := os.Create(filepath.Join(c.dir, "operator.log"))
	if err != nil {
		return fmt.Errorf("open the operator's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	c.operator = exec.CommandContext(ctx, binary, "--listen="+c.address, "--leader-elect", "--token-file="+kubeconfig)
	c.operator.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "POD_NAMESPACE="+systemNamespace, "POD_NAME=bench", "SENTRY_DSN=")
	c.operator.Stdout, c.operator.Stderr = log, log
	if err := c.operator.Start(); err != nil {
		c.operator = nil
		return fmt.Errorf("start the operator: %w", err)
	}
	c.ended = make(chan error, 1)
	go func() { c.ended <- c.operator.Wait() }()
	return process.Until(ctx, readyTime, "the operator is ready", func() (bool, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.address+"/readyz", nil)
		if err != nil {
			return false, err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return false, nil //nolint:nilerr // it doesn't listen yet
		}
		return res.StatusCode == http.StatusOK, res.Body.Close()
	})
}

// token asks for a token of a service account. An empty audience is the API
// server's; pod binds the token to it and may be nil.
func (c *cluster) token(ctx context.Context, namespace, account, audience string, pod *corev1.Pod) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(2 * wholeRun / time.Second))}}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	if err := c.client.SubResource("token").Create(ctx, of, request); err != nil {
		return "", fmt.Errorf("ask for a token of %s/%s: %w", namespace, account, err)
	}
	return request.Status.Token, nil
}

// stop ends what was started, and keeps the operator's log where it failed.
func (c *cluster) stop() error {
	var errs []error
	if c.operator != nil {
		errs = append(errs, process.End(c.operator, c.ended, "the operator"))
	}
	if c.environment != nil {
		errs = append(errs, c.environment.Stop())
	}
	err := errors.Join(errs...)
	if err == nil && c.dir != "" {
		err = os.RemoveAll(c.dir)
	}
	return err
}
