package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/internal/podstatus"
	"dormouse.dev/dormouse/test/bench/process"
)

// resolver is a replica: a Pod that KWOK plays, at whose address the resolver's process answers.
// Each listens at the same ports, and so in one network namespace there is one process: the
// other replicas pass on what the operator asks them.
type resolver struct {
	pod     *corev1.Pod
	ready   time.Time
	passing *http.Server // nil for the process's own
}

// startResolver starts the replica that has a process.
func (c *cluster) startResolver(ctx context.Context) (*resolver, error) {
	r, err := c.makeResolver(ctx, resolverName+"-0")
	if err != nil {
		return nil, err
	}
	if err := c.writeAccess(ctx, resolverName, resolverAccount, r.pod); err != nil {
		return nil, err
	}
	err = c.add(ctx, &program{
		name: resolverName, path: filepath.Join(c.bin, "scale", resolverName),
		args: []string{
			"--http-address=" + r.address(), "--operator-url=http://" + operatorAddress, "--operator-service-account=" + systemNamespace + "/" + operatorAccount,
			"--token-file=" + c.tokenFile(resolverName), "--kubeconfig=" + c.kubeconfig(resolverName), "--drain-delay=0s", "--drain-timeout=1s",
		},
		env: []string{"POD_NAMESPACE=" + systemNamespace, "POD_NAME=" + r.pod.Name, "SENTRY_DSN=", "POD_IPS=" + r.pod.Status.PodIP},
	})
	if err != nil {
		return nil, err
	}
	c.ready[resolverName] = "http://" + r.address() + "/readyz"
	return r, c.await(ctx, resolverName)
}

// passOn starts a replica that passes on what it is asked to the one that has a process.
func (c *cluster) passOn(ctx context.Context, name string, to *resolver) (*resolver, error) {
	r, err := c.makeResolver(ctx, name)
	if err != nil {
		return nil, err
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", r.address())
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", name, err)
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: to.address()})
	// The process may be started again.
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) }
	r.passing = &http.Server{Handler: proxy, ReadHeaderTimeout: time.Second}
	go func() { _ = r.passing.Serve(ln) }()
	return r, nil
}

func (r *resolver) address() string {
	return net.JoinHostPort(r.pod.Status.PodIP, strconv.Itoa(resolverPort))
}

func (r *resolver) stop() error {
	if r.passing == nil {
		return nil
	}
	return r.passing.Close()
}

// makeResolver makes a Pod as config/resolver has it, as far as the operator looks at it, and waits
// until it is ready.
func (c *cluster) makeResolver(ctx context.Context, name string) (*resolver, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: name, Labels: map[string]string{"app.kubernetes.io/name": "dormouse-resolver"}},
		Spec: corev1.PodSpec{
			ServiceAccountName: resolverAccount,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Containers: []corev1.Container{{Name: "resolver", Image: "none", SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}}},
		},
	}
	if err := c.client.Create(ctx, pod); err != nil {
		return nil, fmt.Errorf("create Pod %s: %w", name, err)
	}
	err := process.Until(ctx, startTime, "Pod "+name+" is ready", func() (bool, error) {
		err := c.client.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return podstatus.Ready(pod) && pod.Status.PodIP != "", errors.Join(err, c.alive(ctx))
	})
	return &resolver{pod: pod, ready: time.Now()}, err
}
