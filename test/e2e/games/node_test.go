package games

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// onNode makes a ready Server on a node.
func onNode(ctx context.Context, t *testing.T, namespace, name, node string) *v1alpha1.Server {
	t.Helper()
	spec := suite.Cluster.ServerSpec()
	spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	s, err := suite.Cluster.CreateServer(ctx, namespace, name, spec)
	if err != nil {
		t.Fatal(err)
	}
	if s, err = suite.Cluster.WaitState(ctx, client.ObjectKeyFromObject(s), v1alpha1.ServerReady); err != nil {
		t.Fatal(err)
	}
	return s
}

// nodeReady waits until a node takes pods, and kube-proxy of each node follows what becomes of
// Services: after a cut its watch may be dead for most of a minute, and it shows nobody that.
func nodeReady(ctx context.Context, name string) error {
	err := env.WaitUntil(ctx, "the node is back", func(ctx context.Context) (bool, error) {
		n := &corev1.Node{}
		err := suite.Cluster.Client.Get(ctx, client.ObjectKey{Name: name}, n)
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && len(n.Spec.Taints) == 0 {
				return true, err
			}
		}
		return false, err
	})
	if err != nil {
		return err
	}
	return proxiesFollow(ctx)
}

// proxiesFollow makes a Service with an endpoint that nobody has, and waits until each node routes it.
func proxiesFollow(ctx context.Context) (err error) {
	const address = "192.0.2.77"
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "followed", Labels: map[string]string{discoveryv1.LabelServiceName: "followed"}}
	protocol, port := corev1.ProtocolTCP, int32(9)
	for _, o := range []client.Object{
		&corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: port, Protocol: protocol}}}},
		&discoveryv1.EndpointSlice{
			ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{address}}},
			Ports:     []discoveryv1.EndpointPort{{Name: new(""), Protocol: &protocol, Port: &port}},
		},
	} {
		if err := suite.Cluster.Client.Create(ctx, o); err != nil {
			return fmt.Errorf("make what kube-proxy is to follow: %w", err)
		}
		defer func() { err = errors.Join(err, suite.Cluster.Client.Delete(context.WithoutCancel(ctx), o)) }()
	}
	return suite.Cluster.WaitPodRouted(ctx, address)
}

// kubectl runs the real one and gives what it printed.
func kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(suite.Cluster.Repo, "bin", "kubectl"), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(suite.Cluster.Repo, "bin", "kubeconfig"))
	output, err := cmd.CombinedOutput()
	if err != nil {
		return string(output), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, output)
	}
	return string(output), nil
}

// Scenario 19: a node is drained. The Server that nobody plays on is evicted, the
// other one isn't until its players have left. It takes a node out of service,
// and so runs by itself.
func TestADrainedNodeKeepsItsPlayers(t *testing.T) {
	ctx, ns := suite.Namespace(t)
	const node = "node-2"
	drain := func(timeout string) (string, error) {
		return kubectl(ctx, "drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--pod-selector="+wellknown.ServerLabel, "--timeout="+timeout)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if _, err := kubectl(ctx, "uncordon", node); err != nil {
			t.Error(err)
		}
	})
	busy, idle := onNode(ctx, t, ns, "busy", node), onNode(ctx, t, ns, "idle", node)
	pods := map[string]*corev1.Pod{}
	for _, s := range []*v1alpha1.Server{busy, idle} {
		pod := podOf(s)
		if err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
			t.Fatal(err)
		}
		pods[s.Name] = pod
	}
	setPlayers(ctx, t, busy, 3)
	waitLabel(ctx, t, busy, "false")

	output, err := drain("12s")
	if err == nil {
		t.Fatalf("the node was drained while players were there:\n%s", output)
	}
	gone(ctx, t, pods[idle.Name])
	now := podOf(busy)
	if err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(now), now); err != nil {
		t.Fatal(err)
	}
	if now.UID != pods[busy.Name].UID || now.DeletionTimestamp != nil {
		t.Fatalf("the Pod with players was evicted:\n%s", output)
	}
	for annotation, want := range map[string]string{
		"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "true",
	} {
		if got := now.Annotations[annotation]; got != want {
			t.Errorf("%s is %q while players are there, want %q", annotation, got, want)
		}
	}

	setPlayers(ctx, t, busy, 0)
	waitLabel(ctx, t, busy, "true")
	if output, err := drain("30s"); err != nil {
		t.Fatalf("the node could not be drained though nobody plays: %v\n%s", err, output)
	}
	gone(ctx, t, pods[busy.Name])
	// Their Servers are there, and have new Pods, which wait for the node.
	for _, s := range []*v1alpha1.Server{busy, idle} {
		if _, err := suite.Cluster.WaitState(ctx, client.ObjectKeyFromObject(s), v1alpha1.ServerPending); err != nil {
			t.Error(err)
		}
	}
}

// waitLabel waits until a Server's Pod says whether it may be evicted.
func waitLabel(ctx context.Context, t *testing.T, s *v1alpha1.Server, want string) {
	t.Helper()
	_, err := waitPod(ctx, s, "labeled "+want, func(p *corev1.Pod) bool { return p.Labels[wellknown.DeletionAllowedLabel] == want })
	if err != nil {
		t.Fatal(err)
	}
}
