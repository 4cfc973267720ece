package devcluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"dormouse.dev/dormouse/internal/dev/devcluster/progress"
	"dormouse.dev/dormouse/internal/dev/devcluster/wait"
)

// Check tells what is wrong with the cluster: a component that does not run,
// an API server that does not answer, a node that is not ready, no DNS. It
// takes at most a few seconds.
func (c *Cluster) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return wait.Cause(c.ready(ctx))
}

// ready is [Cluster.Check] for a cluster that may be on its way up.
func (c *Cluster) ready(ctx context.Context) error {
	if err := c.running(); err != nil {
		return err
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	if err := answering(ctx, client); err != nil {
		return c.blame(APIServer, err)
	}
	for node := 1; node <= c.Nodes; node++ {
		name := c.NodeName(node)
		n, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("get node %s: %w", name, err)
		}
		if !nodeReady(n) {
			return c.blame(NodeComponent(Kubelet, node), fmt.Errorf("wait for node %s: it is not ready", name))
		}
	}
	dns, err := client.AppsV1().Deployments(metav1.NamespaceSystem).Get(ctx, dnsName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get deployment %s: %w", dnsName, err)
	}
	if !available(dns) {
		return fmt.Errorf("wait for deployment %s: %d of %d replicas are available", dnsName, dns.Status.AvailableReplicas, *dns.Spec.Replicas)
	}
	return nil
}

// running fails for good when a component has ended: none of them ends by
// itself.
func (c *Cluster) running() error {
	dead, err := c.dead()
	if err != nil {
		return err
	}
	if len(dead) > 0 {
		return wait.Final(c.blame(dead[0], fmt.Errorf("find components running: these ended: %s", strings.Join(dead, ", "))))
	}
	return nil
}

func answering(ctx context.Context, client kubernetes.Interface) error {
	if err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return fmt.Errorf("ask the API server whether it is ready: %w", err)
	}
	return nil
}

func nodeReady(n *corev1.Node) bool {
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func available(d *appsv1.Deployment) bool {
	return d.Spec.Replicas != nil && d.Status.ObservedGeneration >= d.Generation &&
		d.Status.AvailableReplicas >= *d.Spec.Replicas
}

func (c *Cluster) client() (kubernetes.Interface, error) {
	config, err := c.RestConfig()
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return client, nil
}

// blame attaches a component's log to an error, unless it has one.
func (c *Cluster) blame(component string, err error) error {
	return progress.WithLog(c.logPath(component), err)
}
