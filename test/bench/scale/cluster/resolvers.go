package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/internal/podstatus"
	"dormouse.dev/dormouse/test/bench/process"
)

// Resolver is a replica: a Pod that KWOK plays, at whose address the resolver's process answers.
// Each listens at the same ports, and so in one network namespace there is one process: the
// other replicas pass on what the operator asks them.
type Resolver struct {
	Pod *corev1.Pod
	// Ready is when the Pod was first seen ready.
	Ready   time.Time
	passing net.Listener // nil for the process's own
}

// StartResolver starts the replica that has a process.
func (c *Cluster) StartResolver(ctx context.Context) (*Resolver, error) {
	r, err := c.makeResolver(ctx, ResolverName+"-0")
	if err != nil {
		return nil, err
	}
	if err := c.writeAccess(ctx, ResolverName, resolverAccount, r.Pod); err != nil {
		return nil, err
	}
	err = c.add(ctx, &program{
		name: ResolverName, path: filepath.Join(c.bin, "scale", ResolverName),
		args: []string{
			"--http-address=" + r.Address(), "--operator-url=http://" + OperatorAddress, "--operator-service-account=" + systemNamespace + "/" + operatorAccount,
			"--token-file=" + c.TokenFile(ResolverName), "--kubeconfig=" + c.kubeconfig(ResolverName), "--drain-delay=0s", "--drain-timeout=1s",
		},
		env: []string{"POD_NAMESPACE=" + systemNamespace, "POD_NAME=" + r.Pod.Name, "SENTRY_DSN=", "POD_IPS=" + r.Pod.Status.PodIP, "GOGC=50"},
	})
	if err != nil {
		return nil, err
	}
	c.ready[ResolverName] = "http://" + r.Address() + "/readyz"
	return r, c.await(ctx, ResolverName)
}

// PassOn starts a replica that passes on what it is asked to the one that has a process.
func (c *Cluster) PassOn(ctx context.Context, name string, to *Resolver) (*Resolver, error) {
	r, err := c.makeResolver(ctx, name)
	if err != nil {
		return nil, err
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", r.Address())
	if err != nil {
		return nil, fmt.Errorf("listen for %s: %w", name, err)
	}
	r.passing = ln
	go passOn(ctx, ln, to.Address())
	return r, nil
}

// passOn passes on connections until the listener is closed. Where the other end can't be reached, as while it is
// started again, a connection ends.
func passOn(ctx context.Context, ln net.Listener, address string) {
	for {
		from, err := ln.Accept()
		if err != nil {
			return
		}
		to, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			_ = from.Close()
			continue
		}
		for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
			go func() {
				_, _ = io.Copy(way[0], way[1]) // an end is an end
				_, _ = from.Close(), to.Close()
			}()
		}
	}
}

// Address is where it answers the operator.
func (r *Resolver) Address() string {
	return net.JoinHostPort(r.Pod.Status.PodIP, strconv.Itoa(resolverPort))
}

// Stop ends the passing on.
func (r *Resolver) Stop() error {
	if r.passing == nil {
		return nil
	}
	return r.passing.Close()
}

// makeResolver makes a Pod as config/resolver has it, as far as the operator looks at it, and waits
// until it is ready.
func (c *Cluster) makeResolver(ctx context.Context, name string) (*Resolver, error) {
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
	if err := c.Client.Create(ctx, pod); err != nil {
		return nil, fmt.Errorf("create Pod %s: %w", name, err)
	}
	err := process.Until(ctx, startTime, "Pod "+name+" is ready", func() (bool, error) {
		err := c.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return podstatus.Ready(pod) && pod.Status.PodIP != "", errors.Join(err, c.Alive(ctx))
	})
	return &Resolver{Pod: pod, Ready: time.Now()}, err
}
