package devcluster

import (
	"context"
	"fmt"
	"os"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"dormouse.dev/dormouse/internal/dev/devcluster/audit"
	"dormouse.dev/dormouse/internal/dev/devcluster/wait"
)

// kubeletClient is the user that the API server is towards kubelets.
const kubeletClient = "kube-apiserver-kubelet-client"

// setUpAPI waits for the API server and makes the objects that a cluster
// begins with.
func (c *Cluster) setUpAPI(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	err = wait.Until(ctx, time.Minute, func(ctx context.Context) error {
		if err := c.running(); err != nil {
			return err
		}
		return answering(ctx, client)
	})
	if err != nil {
		return c.blame(APIServer, err)
	}
	if err := c.allowKubelets(ctx, client); err != nil {
		return err
	}
	for node := 1; node <= c.Nodes; node++ {
		if err := c.assignPodRanges(ctx, client, node); err != nil {
			return err
		}
	}
	if err := c.deployDNS(ctx, client); err != nil {
		return err
	}
	return c.deployStorage(ctx, client)
}

// allowKubelets lets the API server read logs and exec through kubelets.
func (c *Cluster) allowKubelets(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: kubeletClient},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:kubelet-api-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: kubeletClient}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("bind %s: %w", kubeletClient, err)
	}
	return nil
}

// assignPodRanges tells the API which pods' addresses are a node's. The
// controller manager would deal ranges out in the order that nodes turn up,
// and the routes were made before that.
func (c *Cluster) assignPodRanges(ctx context.Context, client kubernetes.Interface, node int) error {
	name := c.NodeName(node)
	var ranges []string
	for _, r := range c.PodRanges(node) {
		ranges = append(ranges, r.String())
	}
	return wait.Until(ctx, 30*time.Second, func(ctx context.Context) error {
		n, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return c.blame(NodeComponent(Kubelet, node), fmt.Errorf("wait for node %s to register: %w", name, err))
		}
		n.Spec.PodCIDR, n.Spec.PodCIDRs = ranges[0], ranges
		if _, err := client.CoreV1().Nodes().Update(ctx, n, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("assign pod ranges to node %s: %w", name, err)
		}
		return nil
	})
}

// TokenKey is the key, as PEM, with which the API server signs the tokens of
// service accounts. Tests make the tokens with it that can't be asked for.
func (c *Cluster) TokenKey() ([]byte, error) {
	key, err := os.ReadFile(c.pki("sa.key"))
	if err != nil {
		return nil, fmt.Errorf("read the key of service account tokens: %w", err)
	}
	return key, nil
}

// Audit reads what the service accounts of [audit.Namespace] have asked for
// since a time. The record is bounded: what is long ago may be gone from it.
func (c *Cluster) Audit(since time.Time) ([]audit.Entry, error) {
	return audit.Read(c.auditLog(), since)
}
