package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/dev/devcluster/binaries"
	"dormouse.dev/dormouse/internal/dev/manifests"
	"dormouse.dev/dormouse/test/bench/process"
)

const (
	systemNamespace = "dormouse-system"
	operatorAccount = "dormouse-operator"
	resolverAccount = "dormouse-resolver"
	resolverPort    = 8080
	operatorAddress = "127.0.0.1:8080"
	// admin is who this program is.
	admin = "admin"
	// binDir has the programs, below the project's root.
	binDir = "bin"
	// kwokModule is where KWOK's version is pinned.
	kwokModule = "test/bench/scale/kwok"
)

// cluster is a control plane, the nodes that KWOK plays, and one replica of the operator.
type cluster struct {
	dir, bin string
	ca       []byte
	config   *rest.Config
	client   client.WithWatch
	// kubelet is for what KWOK doesn't say in kubelet's place.
	kubelet  client.Client
	web      *http.Client
	audit    audit
	programs []*program
	// ready is where a program says that it is ready, by its name.
	ready map[string]string
	// address is the operator's.
	address string
	// restarts counts those of programs that ended by themselves, while keep lets them.
	keep     bool
	restarts map[string]int
}

// build builds the programs, which may need the network, outside of the sandbox.
func build(ctx context.Context) error {
	if _, err := binaries.EnvtestAssets(ctx, "", os.Stderr); err != nil {
		return fmt.Errorf("build Kubernetes: %w", err)
	}
	say("building KWOK (the first time takes minutes), the operator and the resolver")
	for _, args := range [][]string{
		{"-C", kwokModule, "build", "-o", filepath.Join("..", "..", "..", "..", binDir, kwok), "sigs.k8s.io/kwok/cmd/kwok"},
		{"build", "-o", filepath.Join(binDir, "scale") + "/", "./operator", "./resolver"},
	} {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("go %s (run this in the project's root): %w", strings.Join(args, " "), err)
		}
	}
	return nil
}

// startCluster starts it. stop is to be called whatever comes of it.
func startCluster(ctx context.Context, dir string) (_ *cluster, err error) {
	bin, err := filepath.Abs(binDir)
	if err != nil {
		return nil, fmt.Errorf("find the programs: %w", err)
	}
	c := &cluster{
		dir: dir, bin: bin, address: operatorAddress, restarts: map[string]int{},
		ready: map[string]string{etcd: etcdURL + "/health", apiServer: apiURL + "/readyz", operatorName: "http://" + operatorAddress + "/readyz"},
		audit: audit{file: filepath.Join(dir, "audit.log")},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.stop())
		}
	}()
	if err := c.certify(); err != nil {
		return nil, err
	}
	if err := c.connect(); err != nil {
		return nil, err
	}
	say("starting Kubernetes")
	if err := c.startControlPlane(ctx); err != nil {
		return nil, err
	}
	for _, part := range []string{"namespace", "crd", "rbac", "sidecar", "operator"} {
		objects, err := manifests.Build(filepath.Join("config", part), nil)
		if err != nil {
			return nil, err
		}
		if part == operatorName {
			// The rest is for what runs here as a process.
			objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() != "Secret" })
		}
		if err := manifests.Apply(ctx, c.client, "bench", objects, nil); err != nil {
			return nil, err
		}
	}
	if err := c.makeNamespace(ctx, gamesNamespace); err != nil {
		return nil, err
	}
	if err := c.startNodes(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// connect makes this program's own clients.
func (c *cluster) connect() error {
	var err error
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig(admin)); err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	c.config.QPS, c.config.UserAgent = -1, "benchmark"
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("build the scheme: %w", err)
	}
	if c.client, err = client.NewWithWatch(c.config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	kubelet := rest.CopyConfig(c.config)
	kubelet.UserAgent = "kubelet"
	if c.kubelet, err = client.New(kubelet, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.ca)
	c.web = &http.Client{
		Timeout:   time.Minute,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableCompression: true},
	}
	return nil
}

// startOperator starts a replica as config/operator does, with its own account's rights.
func (c *cluster) startOperator(ctx context.Context) error {
	if err := c.writeAccess(ctx, operatorName, operatorAccount, nil); err != nil {
		return err
	}
	if err := c.add(ctx, c.operatorProgram(operatorName, operatorAddress)); err != nil {
		return err
	}
	return c.await(ctx, operatorName)
}

func (c *cluster) tokenFile(of string) string { return c.file(of + ".token") }

// writeAccess writes what a program's Pod has mounted: a kubeconfig with its own account, and the
// token that it shows to others.
func (c *cluster) writeAccess(ctx context.Context, of, account string, pod *corev1.Pod) error {
	own, err := c.token(ctx, systemNamespace, account, "", pod)
	if err != nil {
		return err
	}
	shown, err := c.token(ctx, systemNamespace, account, wellknown.TokenAudience, pod)
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.tokenFile(of), []byte(shown), 0o600); err != nil {
		return fmt.Errorf("write the token of %s: %w", of, err)
	}
	return c.writeKubeconfig(of, &clientcmdapi.AuthInfo{Token: own})
}

// token asks for a token of an account. An empty audience is the API server's;
// pod binds the token to it and may be nil.
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

// makeNamespace makes a namespace, and waits for the account of its Pods.
func (c *cluster) makeNamespace(ctx context.Context, name string) error {
	if err := c.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return process.Until(ctx, startTime, "there is an account in namespace "+name, func() (bool, error) {
		err := c.client.Get(ctx, client.ObjectKey{Namespace: name, Name: "default"}, &corev1.ServiceAccount{})
		return err == nil, client.IgnoreNotFound(err)
	})
}

// usage is what each program has used.
func (c *cluster) usage() (map[string]process.Usage, error) {
	all := map[string]process.Usage{}
	for _, p := range c.programs {
		u, err := p.used()
		if err != nil {
			return nil, err
		}
		all[p.name] = u
	}
	return all, nil
}

// forgetPeaks lets each program's peak memory begin anew.
func (c *cluster) forgetPeaks() error {
	var errs []error
	for _, p := range c.programs {
		if p.cmd != nil {
			errs = append(errs, process.ForgetPeak(p.cmd.Process.Pid))
		}
	}
	return errors.Join(errs...)
}
