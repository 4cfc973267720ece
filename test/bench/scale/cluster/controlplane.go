package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/internal/dev/devcluster/pki"
	"dormouse.dev/dormouse/test/bench/process"
)

// Names of the programs, which are their user agents, too.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	Scheduler         = "kube-scheduler"
	ControllerManager = "kube-controller-manager"
	KWOK              = "kwok"
	OperatorName      = "operator"
	StandbyName       = "operator-standby"
	ResolverName      = "resolver"
)

// In the sandbox each port is free.
const (
	etcdURL = "http://127.0.0.1:2379"
	// APIURL is the API server's.
	APIURL = "https://127.0.0.1:6443"
)

// startTime is how long a program may take to be of use.
const startTime = 3 * time.Minute

// auditPolicy records who asked for what, without the objects.
var auditPolicy = map[string]any{
	"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
	"omitStages":        []string{"RequestReceived"},
	"omitManagedFields": true,
	"rules":             []map[string]any{{"level": "Metadata"}},
}

func (c *Cluster) file(name string) string { return filepath.Join(c.options.Dir, name) }

// certify makes certificates, kubeconfigs and the key of tokens.
func (c *Cluster) certify() error {
	ca, err := pki.NewAuthority("bench")
	if err != nil {
		return err
	}
	if err := ca.Save(c.options.Dir, "ca"); err != nil {
		return err
	}
	c.ca = ca.Cert
	own, err := ca.Issue(pki.Identity{User: APIServer, Names: []string{"localhost"}, Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
	if err != nil {
		return err
	}
	if err := own.Save(c.options.Dir, APIServer); err != nil {
		return err
	}
	for name, id := range map[string]pki.Identity{
		admin:             {User: "bench", Groups: []string{"system:masters"}},
		KWOK:              {User: KWOK, Groups: []string{"system:masters"}},
		Scheduler:         {User: "system:kube-scheduler"},
		ControllerManager: {User: "system:kube-controller-manager"},
	} {
		issued, err := ca.Issue(id)
		if err != nil {
			return err
		}
		if err := c.writeKubeconfig(name, &clientcmdapi.AuthInfo{ClientCertificateData: issued.Cert, ClientKeyData: issued.Key}); err != nil {
			return err
		}
	}
	private, public, err := pki.NewTokenKey()
	if err != nil {
		return err
	}
	policy, err := json.Marshal(auditPolicy)
	if err != nil {
		return fmt.Errorf("encode the audit policy: %w", err)
	}
	schedulerConfig, err := json.Marshal(map[string]any{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"leaderElection":   map[string]any{"leaderElect": false},
		"clientConnection": map[string]any{"kubeconfig": c.kubeconfig(Scheduler), "qps": 1000, "burst": 2000},
	})
	if err != nil {
		return fmt.Errorf("encode the scheduler's configuration: %w", err)
	}
	for name, content := range map[string][]byte{"sa.key": private, "sa.pub": public, "audit-policy.json": policy, "scheduler.json": schedulerConfig} {
		if err := os.WriteFile(c.file(name), content, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

func (c *Cluster) kubeconfig(of string) string { return c.file(of + ".kubeconfig") }

func (c *Cluster) writeKubeconfig(of string, user *clientcmdapi.AuthInfo) error {
	const name = "bench"
	access := clientcmdapi.NewConfig()
	access.Clusters[name] = &clientcmdapi.Cluster{Server: APIURL, CertificateAuthorityData: c.ca}
	access.AuthInfos[name] = user
	access.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	access.CurrentContext = name
	if err := clientcmd.WriteToFile(*access, c.kubeconfig(of)); err != nil {
		return fmt.Errorf("write the kubeconfig of %s: %w", of, err)
	}
	return nil
}

func (c *Cluster) controlPlane() []*program {
	const issuer = "https://kubernetes.default.svc"
	kubernetes := filepath.Join(c.bin, "kubernetes")
	return []*program{
		{name: Etcd, path: kubernetes, args: []string{
			"--data-dir=" + c.file("etcd"), "--unsafe-no-fsync", "--log-level=warn", "--quota-backend-bytes=8589934592",
			"--listen-client-urls=" + etcdURL, "--advertise-client-urls=" + etcdURL,
			// Nothing speaks to it, and it wants one.
			"--listen-peer-urls=http://127.0.0.1:2380",
		}},
		{name: APIServer, path: kubernetes, args: []string{
			"--etcd-servers=" + etcdURL, "--bind-address=127.0.0.1", "--secure-port=6443",
			"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
			"--tls-cert-file=" + c.file(APIServer+".crt"), "--tls-private-key-file=" + c.file(APIServer+".key"),
			"--client-ca-file=" + c.file("ca.crt"),
			"--service-account-issuer=" + issuer,
			"--service-account-key-file=" + c.file("sa.pub"), "--service-account-signing-key-file=" + c.file("sa.key"),
			"--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=RBAC",
			"--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
			"--audit-policy-file=" + c.file("audit-policy.json"), "--audit-log-path=" + c.Audit.File,
			// One file, of any size.
			"--audit-log-maxsize=1000000",
		}},
		{name: ControllerManager, path: kubernetes, args: []string{
			"--kubeconfig=" + c.kubeconfig(ControllerManager), "--leader-elect=false", "--secure-port=0",
			"--use-service-account-credentials", "--service-account-private-key-file=" + c.file("sa.key"), "--root-ca-file=" + c.file("ca.crt"),
			// Who sleeps here needs no ReplicaSet.
			"--controllers=*,-deployment-controller",
			"--kube-api-qps=1000", "--kube-api-burst=2000",
		}},
		{name: Scheduler, path: kubernetes, args: []string{"--config=" + c.file("scheduler.json"), "--secure-port=0"}},
	}
}

// startControlPlane starts Kubernetes' programs, each once the one that it needs answers.
func (c *Cluster) startControlPlane(ctx context.Context) error {
	for _, p := range c.controlPlane() {
		if err := c.add(ctx, p); err != nil {
			return err
		}
		if err := c.await(ctx, p.name); err != nil {
			return err
		}
	}
	return nil
}

// add starts a program that ends with the cluster.
func (c *Cluster) add(ctx context.Context, p *program) error {
	p.log = c.file(p.name + ".log")
	c.programs = append(c.programs, p)
	return p.start(ctx)
}

// await waits until a program is of use.
func (c *Cluster) await(ctx context.Context, name string) error {
	url := c.ready[name]
	if url == "" {
		return nil
	}
	return process.Until(ctx, startTime, name+" is ready", func() (bool, error) {
		if err := c.program(name).alive(); err != nil {
			return false, err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return false, fmt.Errorf("build a request: %w", err)
		}
		res, err := c.Web.Do(req)
		if err != nil {
			return false, nil //nolint:nilerr // it doesn't listen yet
		}
		return res.StatusCode == http.StatusOK, res.Body.Close()
	})
}

// Has reports whether there is a program of that name.
func (c *Cluster) Has(name string) bool { return c.program(name) != nil }

func (c *Cluster) program(name string) *program {
	for _, p := range c.programs {
		if p.name == name {
			return p
		}
	}
	return nil
}

// Stop ends all programs, those that others need last. Dormouse's end by themselves, and the others
// have nothing to keep: the API server would wait for those who watch.
func (c *Cluster) Stop() error {
	var errs []error
	for _, v := range slices.Backward(c.programs) {
		switch p := v; p.name {
		case OperatorName, ResolverName:
			errs = append(errs, p.stop())
		default:
			errs = append(errs, p.kill())
		}
	}
	return errors.Join(errs...)
}

// Alive is nil while all programs run. One that has ended is started again where that is expected,
// as kubelet would.
func (c *Cluster) Alive(ctx context.Context) error {
	var errs []error
	for _, p := range c.programs {
		if p.cmd == nil {
			continue
		}
		err := p.alive()
		if err != nil && c.Keep {
			c.options.Say("starting %s again, which has ended", p.name)
			c.Restarts[p.name]++
			p.note()
			err = p.start(ctx)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Restart kills a program, starts it again, and waits until it is of use.
func (c *Cluster) Restart(ctx context.Context, name string) error {
	all := []*program{c.program(name)}
	for i := 1; name == KWOK && i < kwoks; i++ {
		all = append(all, c.program(kwokName(i)))
	}
	for _, p := range all {
		end := p.kill
		if name == OperatorName {
			end = p.stop // it gives up its lease
		}
		if err := end(); err != nil {
			return err
		}
	}
	began := time.Now()
	for _, p := range all {
		if err := p.start(ctx); err != nil {
			return err
		}
	}
	if err := c.await(ctx, name); err != nil {
		return err
	}
	switch name {
	case OperatorName:
		_, _, err := c.AwaitLeader(ctx, c.Address, began)
		return err
	case ControllerManager:
		return c.MakeNamespace(ctx, "probe")
	case Scheduler, KWOK:
		return c.probePod(ctx)
	}
	return nil
}

// probePod makes a Pod, waits until it runs, and deletes it.
func (c *Cluster) probePod(ctx context.Context) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "probe-"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
	if err := c.Client.Create(ctx, pod); err != nil {
		return fmt.Errorf("create a Pod: %w", err)
	}
	err := process.Until(ctx, startTime, "a Pod runs", func() (bool, error) {
		err := c.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return pod.Status.Phase == corev1.PodRunning, errors.Join(err, c.Alive(ctx))
	})
	return errors.Join(err, c.Client.Delete(ctx, pod))
}
