package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// nodes is how many KWOK plays, and podsEach how many Pods each has room for: as kubelet's
	// default is.
	nodes    = 100
	podsEach = 110
	// kwoks is how many processes of KWOK play them. Each looks at the Pods of its nodes one after the other: one
	// process alone can't follow ten thousand, whereupon the API server ends its watch, and it looks at all of them
	// again.
	kwoks = 4
	// kwokLabel says of a node which process plays it.
	kwokLabel = "kwok"
)

// kwokName is the name of a process of KWOK's.
func kwokName(i int) string {
	if i == 0 {
		return KWOK
	}
	return fmt.Sprintf("%s-%d", KWOK, i)
}

// stages writes KWOK's own stages of a node that is up and of Pods that start and end at once.
func (c *Cluster) stages(ctx context.Context) (string, error) {
	list := exec.CommandContext(ctx, "go", "-C", kwokModule, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok")
	list.Stderr = os.Stderr
	dir, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("find KWOK's module: %w", err)
	}
	var all [][]byte
	for _, name := range []string{"node/fast/node-initialize.yaml", "pod/fast/pod-ready.yaml", "pod/fast/pod-delete.yaml"} {
		stage, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "kustomize", "stage", name))
		if err != nil {
			return "", fmt.Errorf("read KWOK's stages: %w", err)
		}
		all = append(all, stage)
	}
	// Its defaults are one or four at a time.
	all = append(all, []byte(`apiVersion: config.kwok.x-k8s.io/v1alpha1
kind: KwokConfiguration
options:
  podPlayStageParallelism: 32
  nodePlayStageParallelism: 8
  nodeLeaseParallelism: 4
  podsOnNodeSyncParallelism: 4
`))
	file := c.file("kwok.yaml")
	if err := os.WriteFile(file, bytes.Join(all, []byte("\n---\n")), 0o600); err != nil {
		return "", fmt.Errorf("write KWOK's configuration: %w", err)
	}
	return file, nil
}

// startNodes makes nodes and starts KWOK, which plays their kubelets.
func (c *Cluster) startNodes(ctx context.Context) error {
	c.options.Say("making %d nodes", nodes)
	for i := range nodes {
		name := fmt.Sprintf("node-%03d", i)
		room := corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("256Gi"),
			corev1.ResourcePods: *resource.NewQuantity(podsEach, resource.DecimalSI),
		}
		node := &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", kwokLabel: kwokName(i % kwoks)}},
			Status:     corev1.NodeStatus{Capacity: room, Allocatable: room},
		}
		if err := c.Client.Create(ctx, node); err != nil {
			return fmt.Errorf("create node %s: %w", name, err)
		}
	}
	stages, err := c.stages(ctx)
	if err != nil {
		return err
	}
	for i := range kwoks {
		err := c.add(ctx, &program{name: kwokName(i), as: KWOK, path: filepath.Join(c.bin, KWOK), args: []string{
			"--config=" + stages, "--kubeconfig=" + c.kubeconfig(KWOK), "--manage-nodes-with-label-selector=" + kwokLabel + "=" + kwokName(i),
			// The addresses of Pods are local in the sandbox.
			fmt.Sprintf("--cidr=10.244.%d.1/18", i*256/kwoks), "--node-ip=10.65.0.1", "--node-lease-duration-seconds=40",
		}})
		if err != nil {
			return err
		}
	}
	return nil
}
