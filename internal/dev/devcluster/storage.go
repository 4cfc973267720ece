package devcluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"dormouse.dev/dormouse/internal/dev/devcluster/binaries"
)

// The cluster's volumes are directories that all nodes see, as those of a file server would be. So
// a pod finds its volume on whichever node it comes to.

// Provisioner is the component that makes volumes.
const Provisioner = "local-path-provisioner"

const volumeRef = "dormouse.dev/devcluster/volume:1"

// volumes is where the volumes' directories are, on the host and in each node.
func (l layout) volumes() string { return l.join("volumes") }

// provisioner is the component that makes volumes.
func (c *Cluster) provisioner() component {
	return component{name: Provisioner, argv: []string{
		c.binary(Provisioner), "start",
		"--config=" + c.config("local-path.json"),
		"--helper-pod-file=" + c.config("local-path-pod.yaml"),
		"--kubeconfig=" + c.Kubeconfig(),
		"--namespace=" + metav1.NamespaceSystem,
		"--service-account-name=default",
		"--provisioner-name=" + binaries.ProvisionerName,
	}}
}

// provisionerConfig is its configuration file.
func (c *Cluster) provisionerConfig() object {
	return object{
		"sharedFileSystemPath": c.volumes(), "setupCommand": "/volume", "teardownCommand": "/volume", "cmdTimeoutSeconds": 60,
	}
}

// helperPod is the pod that makes and removes directories.
func helperPod() object {
	return object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "volume"},
		"spec": object{"containers": []object{{
			"name": "volume", "image": volumeRef, "imagePullPolicy": "Never",
			"securityContext": object{"runAsUser": 0},
		}}},
	}
}

// deployStorage makes the default StorageClass.
func (c *Cluster) deployStorage(ctx context.Context, client kubernetes.Interface) error {
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{
			Name: "local-path", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"},
		},
		Provisioner:       binaries.ProvisionerName,
		VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
		ReclaimPolicy:     new(corev1.PersistentVolumeReclaimDelete),
	}
	if _, err := client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make the default StorageClass: %w", err)
	}
	return c.start(c.provisioner())
}
