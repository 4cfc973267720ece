// Package cluster is what the benchmark of scale runs against: a control plane of Kubernetes' own programs,
// nodes that KWOK plays, and the operator's and the resolver's binaries, each a process that can be stopped,
// killed and started again. It doesn't know what is measured.
package cluster

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
	"dormouse.dev/dormouse/test/bench/scale/audit"
)

const (
	systemNamespace = "dormouse-system"
	operatorAccount = "dormouse-operator"
	resolverAccount = "dormouse-resolver"
	resolverPort    = 8080
	// admin is who this program is.
	admin = "admin"
	// binDir has the programs, below the project's root.
	binDir = "bin"
	// kwokModule is where KWOK's version is pinned.
	kwokModule = "test/bench/scale/kwok"
)

// Options are what a Cluster needs to be told.
type Options struct {
	// Dir is for the programs' files and logs.
	Dir string
	// OutboundNetworks are those in which the operator may ask on behalf of triggers.
	OutboundNetworks string
	// OperatorMemory is the operator's GOMEMLIMIT.
	OperatorMemory string
	// TokenLife is for how long tokens are good.
	TokenLife time.Duration
	// Say says what happens.
	Say func(format string, args ...any)
}

// Cluster is a control plane, the nodes that KWOK plays, and one replica of the operator.
type Cluster struct {
	// Config and Client are the benchmark's own, with all rights.
	Config *rest.Config
	Client client.WithWatch
	// Kubelet is for what KWOK doesn't say in kubelet's place.
	Kubelet client.Client
	// Web trusts the API server, and asks nothing to be compressed.
	Web *http.Client
	// Audit is what the API server was asked.
	Audit audit.Log
	// Address is the operator's.
	Address string
	// Restarts counts those of programs that ended by themselves, while Keep lets them.
	Keep     bool
	Restarts map[string]int

	options  Options
	bin      string
	ca       []byte
	programs []*program
	// ready is where a program says that it is ready, by its name.
	ready map[string]string
}

// Build builds the programs, which may need the network, outside of the sandbox.
func Build(ctx context.Context, say func(format string, args ...any)) error {
	if _, err := binaries.EnvtestAssets(ctx, "", os.Stderr); err != nil {
		return fmt.Errorf("build Kubernetes: %w", err)
	}
	say("building KWOK (the first time takes minutes), the operator and the resolver")
	for _, args := range [][]string{
		{"-C", kwokModule, "build", "-o", filepath.Join("..", "..", "..", "..", binDir, KWOK), "sigs.k8s.io/kwok/cmd/kwok"},
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

// Start starts all but the operator and the resolver.
func Start(ctx context.Context, o Options) (_ *Cluster, err error) {
	bin, err := filepath.Abs(binDir)
	if err != nil {
		return nil, fmt.Errorf("find the programs: %w", err)
	}
	c := &Cluster{
		options: o, bin: bin, Address: OperatorAddress, Restarts: map[string]int{},
		ready: map[string]string{Etcd: etcdURL + "/health", APIServer: APIURL + "/readyz", OperatorName: "http://" + OperatorAddress + "/readyz"},
		Audit: audit.Log{File: filepath.Join(o.Dir, "audit.log")},
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	if err := c.certify(); err != nil {
		return nil, err
	}
	if err := c.connect(); err != nil {
		return nil, err
	}
	c.options.Say("starting Kubernetes")
	if err := c.startControlPlane(ctx); err != nil {
		return nil, err
	}
	for _, part := range []string{"namespace", "crd", "rbac", "sidecar", "operator"} {
		objects, err := manifests.Build(filepath.Join("config", part), nil)
		if err != nil {
			return nil, err
		}
		if part == OperatorName {
			// The rest is for what runs here as a process.
			objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() != "Secret" })
		}
		if err := manifests.Apply(ctx, c.Client, "bench", objects, nil); err != nil {
			return nil, err
		}
	}
	if err := c.startNodes(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// connect makes this program's own clients.
func (c *Cluster) connect() error {
	var err error
	if c.Config, err = clientcmd.BuildConfigFromFlags("", c.kubeconfig(admin)); err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	c.Config.QPS, c.Config.UserAgent = -1, "benchmark"
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("build the scheme: %w", err)
	}
	if c.Client, err = client.NewWithWatch(c.Config, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	kubelet := rest.CopyConfig(c.Config)
	kubelet.UserAgent = "kubelet"
	if c.Kubelet, err = client.New(kubelet, client.Options{Scheme: scheme}); err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.ca)
	c.Web = &http.Client{
		Timeout:   time.Minute,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DisableCompression: true},
	}
	return nil
}

// TokenFile has the token that a program shows to others.
func (c *Cluster) TokenFile(of string) string { return c.file(of + ".token") }

// writeAccess writes what a program's Pod has mounted: a kubeconfig with its own account, and the
// token that it shows to others.
func (c *Cluster) writeAccess(ctx context.Context, of, account string, pod *corev1.Pod) error {
	own, err := c.Token(ctx, systemNamespace, account, "", pod)
	if err != nil {
		return err
	}
	shown, err := c.Token(ctx, systemNamespace, account, wellknown.TokenAudience, pod)
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.TokenFile(of), []byte(shown), 0o600); err != nil {
		return fmt.Errorf("write the token of %s: %w", of, err)
	}
	return c.writeKubeconfig(of, &clientcmdapi.AuthInfo{Token: own})
}

// Token asks for a token of an account. An empty audience is the API server's;
// pod binds the token to it and may be nil.
func (c *Cluster) Token(ctx context.Context, namespace, account, audience string, pod *corev1.Pod) (string, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(c.options.TokenLife / time.Second))}}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	if pod != nil {
		request.Spec.BoundObjectRef = &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}
	}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: account}}
	if err := c.Client.SubResource("token").Create(ctx, of, request); err != nil {
		return "", fmt.Errorf("ask for a token of %s/%s: %w", namespace, account, err)
	}
	return request.Status.Token, nil
}

// MakeNamespace makes a namespace, and waits for the account of its Pods.
func (c *Cluster) MakeNamespace(ctx context.Context, name string) error {
	if err := c.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		return fmt.Errorf("create namespace %s: %w", name, err)
	}
	return process.Until(ctx, startTime, "there is an account in namespace "+name, func() (bool, error) {
		err := c.Client.Get(ctx, client.ObjectKey{Namespace: name, Name: "default"}, &corev1.ServiceAccount{})
		return err == nil, client.IgnoreNotFound(err)
	})
}

// Usage is what each program has used.
func (c *Cluster) Usage() (map[string]process.Usage, error) {
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

// ForgetPeaks lets each program's peak memory begin anew.
func (c *Cluster) ForgetPeaks() error {
	var errs []error
	for _, p := range c.programs {
		if p.cmd != nil {
			errs = append(errs, process.ForgetPeak(p.cmd.Process.Pid))
		}
	}
	return errors.Join(errs...)
}
