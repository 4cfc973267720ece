package savings

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// maxCPU and maxMemory bound what a pod counts for, which is more than any node has. A pod may
// request anything: one that no node can run must not spoil its namespace's sums.
var maxCPU, maxMemory = resource.MustParse("100k"), resource.MustParse("32Ti")

func atMost(q, most resource.Quantity) resource.Quantity {
	if q.Cmp(most) > 0 {
		return most
	}
	return q
}

// requested is what the scheduler sets aside for a pod of a resource: what its containers and
// sidecars request together, or one of its init containers beside the sidecars before it, if that
// is more; and the overhead of its runtime. What the pod itself requests takes the containers'
// place.
func requested(spec *corev1.PodSpec, name corev1.ResourceName) resource.Quantity {
	var sum, sidecars, most resource.Quantity
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars.Add(c.Resources.Requests[name])
			continue
		}
		beside := sidecars.DeepCopy()
		beside.Add(c.Resources.Requests[name])
		if beside.Cmp(most) > 0 {
			most = beside
		}
	}
	sum.Add(sidecars)
	for i := range spec.Containers {
		sum.Add(spec.Containers[i].Resources.Requests[name])
	}
	if most.Cmp(sum) > 0 {
		sum = most
	}
	if spec.Resources != nil {
		if own, ok := spec.Resources.Requests[name]; ok {
			sum = own.DeepCopy()
		}
	}
	sum.Add(spec.Overhead[name])
	return sum
}
