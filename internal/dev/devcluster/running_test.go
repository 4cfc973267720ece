//go:build devcluster

// These tests are about the machine's running cluster. They take "-tags
// devcluster", and root.
package devcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"dormouse.dev/dormouse/internal/dev/devcluster/wait"
	"dormouse.dev/dormouse/internal/dev/images"
)

const echoRef = "dormouse.dev/devcluster/echo:test"

func openRunning(t *testing.T) (*Cluster, kubernetes.Interface) {
	t.Helper()
	c, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	client, err := c.client()
	if err != nil {
		t.Fatal(err)
	}
	return c, client
}

// namespace makes one that goes with the test.
func namespace(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	ns, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "devcluster-test-"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), ns.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	return ns.Name
}

func loadEcho(t *testing.T, c *Cluster) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "echo")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./testdata/echo")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build echo: %v\n%s", err, out)
	}
	archive := filepath.Join(t.TempDir(), "echo.tar")
	err := images.BuildAndSave(archive, images.Spec{
		Ref: echoRef, Entrypoint: []string{"/echo"}, User: "65532",
		Files: map[string]images.File{"/echo": images.FromHost(binary)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.LoadImage(t.Context(), archive); err != nil {
		t.Fatal(err)
	}
}

// echoPod runs on the given node, with its port on the node as well.
func echoPod(name, node string, hostPort int32) *corev1.Pod {
	port := func(protocol corev1.Protocol) corev1.ContainerPort {
		return corev1.ContainerPort{ContainerPort: 7777, HostPort: hostPort, Protocol: protocol}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "echo"}},
		Spec: corev1.PodSpec{
			NodeSelector:                  map[string]string{corev1.LabelHostname: node},
			TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []corev1.Container{{
				Name: "echo", Image: echoRef, ImagePullPolicy: corev1.PullNever,
				Ports: []corev1.ContainerPort{port(corev1.ProtocolTCP), port(corev1.ProtocolUDP)},
			}},
		},
	}
}

// echoOnce sends a word and wants it back.
func echoOnce(ctx context.Context, network, address string) error {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("dormouse")); err != nil {
		return err
	}
	answer := make([]byte, 64)
	n, err := conn.Read(answer)
	if err != nil {
		return err
	}
	if got := string(answer[:n]); got != "dormouse" {
		return fmt.Errorf("%s %s answered %q", network, address, got)
	}
	return nil
}

func TestAPlayerReachesPodsOnEveryNodeByEveryKindOfService(t *testing.T) {
	c, client := openRunning(t)
	loadEcho(t, c)
	ns := namespace(t, client)
	for node := 1; node <= c.Nodes; node++ {
		pod := echoPod(fmt.Sprintf("echo-%d", node), c.NodeName(node), 7070)
		if _, err := client.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	service, err := client.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "echo"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": "echo"},
			IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack),
			Ports: []corev1.ServicePort{
				{Name: "tcp", Port: 7777, Protocol: corev1.ProtocolTCP},
				{Name: "udp", Port: 7777, Protocol: corev1.ProtocolUDP},
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var targets []string
	for i, network := range []string{"tcp", "udp"} {
		for _, addr := range service.Spec.ClusterIPs {
			targets = append(targets, network+" "+net.JoinHostPort(addr, "7777"))
		}
		for node := 1; node <= c.Nodes; node++ {
			for _, addr := range c.NodeAddrs(node) {
				targets = append(targets,
					fmt.Sprintf("%s %s", network, netip.AddrPortFrom(addr, uint16(service.Spec.Ports[i].NodePort))),
					fmt.Sprintf("%s %s", network, netip.AddrPortFrom(addr, 7070)))
			}
		}
	}
	for _, target := range targets {
		network, address, _ := strings.Cut(target, " ")
		err := wait.Until(t.Context(), 30*time.Second, func(ctx context.Context) error {
			return c.InPlayer(func() error { return echoOnce(ctx, network, address) })
		})
		if err != nil {
			t.Errorf("reach %s: %v", target, err)
		}
	}
}

func TestAProgramOfTheDistributionRunsInAnImageOfItsClosure(t *testing.T) {
	c, client := openRunning(t)
	files, err := images.Closure(t.Context(), "/bin/bash", "/usr/share/zoneinfo/Europe")
	if err != nil {
		t.Fatal(err)
	}
	const ref = "dormouse.dev/devcluster/bash:test"
	archive := filepath.Join(t.TempDir(), "bash.tar")
	if err := images.BuildAndSave(archive, images.Spec{Ref: ref, Entrypoint: []string{"/bin/bash"}, User: "65532", Files: files}); err != nil {
		t.Fatal(err)
	}
	if err := c.LoadImage(t.Context(), archive); err != nil {
		t.Fatal(err)
	}
	ns := namespace(t, client)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "bash"}, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{
			Name: "bash", Image: ref, ImagePullPolicy: corev1.PullNever, Args: []string{"-c", "test -e /usr/share/zoneinfo/Europe/Berlin"},
		}},
	}}
	if _, err := client.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	err = wait.Until(t.Context(), 30*time.Second, func(ctx context.Context) error {
		got, err := client.CoreV1().Pods(ns).Get(ctx, pod.Name, metav1.GetOptions{})
		switch {
		case err != nil:
			return err
		case got.Status.Phase == corev1.PodFailed:
			return wait.Final(fmt.Errorf("bash failed: %+v", got.Status.ContainerStatuses))
		case got.Status.Phase != corev1.PodSucceeded:
			return fmt.Errorf("bash is %s", got.Status.Phase)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAPlayerHasNoWayOut(t *testing.T) {
	c, _ := openRunning(t)
	// TEST-NET-3 and the documentation prefix: nobody's, wherever this runs.
	for _, address := range []string{"203.0.113.1:9", "[2001:db8::1]:9", "10.244.1.2:9"} {
		err := c.InPlayer(func() error { return echoOnce(t.Context(), "tcp", address) })
		if !errors.Is(err, syscall.ENETUNREACH) {
			t.Errorf("dial %s from the player: %v, want network unreachable", address, err)
		}
	}
}

func TestACutNodeIsSilentUntilItIsRestored(t *testing.T) {
	c, _ := openRunning(t)
	kubelet := netip.AddrPortFrom(c.NodeAddrs(2)[0], 10250).String()
	dial := func() error {
		conn, err := (&net.Dialer{Timeout: 500 * time.Millisecond}).DialContext(t.Context(), "tcp", kubelet)
		if err == nil {
			err = conn.Close()
		}
		return err
	}
	if err := dial(); err != nil {
		t.Fatal(err)
	}
	if err := c.CutNode(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	cut := dial()
	if err := c.RestoreNode(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if cut == nil {
		t.Error("a node that was cut off answered")
	}
	err := wait.Until(t.Context(), 10*time.Second, func(context.Context) error { return dial() })
	if err != nil {
		t.Errorf("reach the restored node: %v", err)
	}
}

func TestAKilledComponentComesBackOnStart(t *testing.T) {
	c, _ := openRunning(t)
	for _, name := range []string{Scheduler, ControllerManager, APIServer, Etcd, NodeComponent(Containerd, 2), NodeComponent(Kubelet, 2), NodeComponent(KubeProxy, 2)} {
		if err := c.Kill(t.Context(), name); err != nil {
			t.Fatal(err)
		}
		if err := c.Check(t.Context()); err == nil {
			t.Errorf("Check found nothing wrong without %s", name)
		}
		if err := c.Start(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if err := wait.Until(t.Context(), time.Minute, c.ready); err != nil {
		t.Errorf("wait for the cluster after every component was killed: %v", err)
	}
}
