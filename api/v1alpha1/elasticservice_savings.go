package v1alpha1

import "k8s.io/apimachinery/pkg/api/resource"

// AsleepRequests is what the pods of a target requested that Dormouse put to sleep, all together.
type AsleepRequests struct {
	// replicas is how many there were.
	// +optional
	Replicas int32 `json:"replicas,omitempty"`

	// cpu is the sum of their requests of CPU, in cores.
	// +optional
	CPU resource.Quantity `json:"cpu,omitempty"`

	// memory is the sum of their requests of memory, in bytes.
	// +optional
	Memory resource.Quantity `json:"memory,omitempty"`
}

// Saved is what a service's sleeps have saved: the requests of the pods that there would have been,
// times how long they weren't there. Nodes cost less only where a cluster autoscaler removes those
// that become empty.
type Saved struct {
	// milliCPUSeconds is how much CPU, in thousandths of a core times seconds.
	// +optional
	MilliCPUSeconds int64 `json:"milliCPUSeconds,omitempty"`

	// mebibyteSeconds is how much memory, in MiB times seconds.
	// +optional
	MebibyteSeconds int64 `json:"mebibyteSeconds,omitempty"`

	// amount is what all of that costs at the prices that the administrator had set when the
	// service last woke, such as "12.34 EUR"; not set without prices.
	// +optional
	Amount string `json:"amount,omitempty"`
}
