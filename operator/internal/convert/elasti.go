package convert

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// KubeElasti's objects.
const (
	elastiGroup = "elasti.truefoundry.com"
	elastiKind  = "ElastiService"
)

// Defaults of KubeElasti.
const (
	// elastiCooldown is how many seconds a service is idle before it sleeps.
	elastiCooldown = 900
	// elastiUptimeFilter selects the series up of the Prometheus that is asked.
	elastiUptimeFilter = `container="prometheus"`
	elastiSchedule     = "0 0 * * *"
	elastiDuration     = "24h"
)

// elastiService is an ElastiService, as in KubeElasti's operator/api/v1alpha1.
type elastiService struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ObjectMeta `json:"metadata"`
	Spec            elastiSpec        `json:"spec"`
	Status          json.RawMessage   `json:"status,omitempty"`
}

type elastiSpec struct {
	ScaleTargetRef    elastiTarget      `json:"scaleTargetRef"`
	Service           string            `json:"service"`
	ProbeResponse     []elastiProbe     `json:"probeResponse,omitempty"`
	MinTargetReplicas int32             `json:"minTargetReplicas,omitempty"`
	CooldownPeriod    int32             `json:"cooldownPeriod,omitempty"`
	Triggers          []elastiTrigger   `json:"triggers,omitempty"`
	Autoscaler        *elastiAutoscaler `json:"autoscaler,omitempty"`
	EnabledPeriod     *elastiPeriod     `json:"enabledPeriod,omitempty"`
}

type elastiTarget struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
}

type elastiTrigger struct {
	Type     string          `json:"type"`
	Metadata json.RawMessage `json:"metadata,omitempty"`
}

// elastiPrometheus is the metadata of a trigger of the type prometheus.
type elastiPrometheus struct {
	ServerAddress string `json:"serverAddress"`
	Query         string `json:"query"`
	// Threshold is a number, in quotes or not.
	Threshold    json.RawMessage `json:"threshold"`
	UptimeFilter string          `json:"uptimeFilter"`
}

type elastiAutoscaler struct {
	Type string `json:"type"`
	Name string `json:"name"`
}

// elastiPeriod is when services may sleep, in UTC.
type elastiPeriod struct {
	Schedule string `json:"schedule,omitempty"`
	Duration string `json:"duration,omitempty"`
}

type elastiProbe struct {
	Path        *elastiMatch     `json:"path,omitempty"`
	Headers     []elastiMatch    `json:"headers,omitempty"`
	QueryParams []elastiMatch    `json:"queryParams,omitempty"`
	Method      string           `json:"method,omitempty"`
	Response    elastiProbeReply `json:"response"`
}

// elastiMatch is what a path, a header or a parameter of the query must be like.
type elastiMatch struct {
	Name  string `json:"name,omitempty"`
	Type  string `json:"type,omitempty"`
	Value string `json:"value,omitempty"`
}

type elastiProbeReply struct {
	Status int32 `json:"status,omitempty"`
	// Body is a string, or any JSON, which is sent as it is.
	Body json.RawMessage `json:"body,omitempty"`
}
