package scalewebhook

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/operator/internal/text"
)

// Format is how a question is written and an answer is read.
type Format string

const (
	// FormatDormouse asks {"game_name", "namespace", "current_replicas", "ready_replicas",
	// "players", "capacity"} and is answered {"scale", "desired_replicas"}.
	FormatDormouse Format = "dormouse"
	// FormatAgones is Agones' FleetAutoscaleReview.
	FormatAgones Format = "agones"
)

// Review is what a webhook is asked about.
type Review struct {
	// Namespace and Name are those of the GameType or Fleet that is to be scaled. The question is
	// counted as one of the namespace's.
	Namespace, Name string
	// Replicas is how many Servers there are.
	Replicas int32
	// ReadyReplicas is how many of them are ready for players, allocated ones included.
	ReadyReplicas int32
	// AllocatedReplicas is how many of the ready ones are allocated or have players. Agones
	// doesn't count these as ready, so they are taken off for its format.
	AllocatedReplicas int32
	// Players is how many play.
	Players int64
	// Capacity is how many could.
	Capacity int64
	// Labels and Annotations are the object's. Agones' format alone has them.
	Labels, Annotations map[string]string
}

const (
	// maxEntry and maxEntries bound the labels and annotations that are sent, in bytes of JSON:
	// one, and all labels, or all annotations. Webhooks written for Agones send the question
	// back beside their answer, which has a bound of its own.
	maxEntry   = 2 << 10
	maxEntries = 16 << 10
)

type dormouseRequest struct {
	GameName        string `json:"game_name"`
	Namespace       string `json:"namespace"`
	CurrentReplicas int32  `json:"current_replicas"`
	ReadyReplicas   int32  `json:"ready_replicas"`
	Players         int64  `json:"players"`
	Capacity        int64  `json:"capacity"`
}

// agonesReview is FleetAutoscaleReview of Agones' pkg/apis/autoscaling/v1/fleetautoscaler.go.
type agonesReview struct {
	Request  agonesRequest `json:"request"`
	Response *struct{}     `json:"response"`
}

type agonesRequest struct {
	UID         string            `json:"uid"`
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Status      agonesStatus      `json:"status"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type agonesStatus struct {
	Replicas          int32 `json:"replicas"`
	ReadyReplicas     int32 `json:"readyReplicas"`
	ReservedReplicas  int32 `json:"reservedReplicas"`
	AllocatedReplicas int32 `json:"allocatedReplicas"`
}

// encode writes a question. The uid is one that was never used before.
func encode(format Format, r Review, uid string) ([]byte, error) {
	switch format {
	case FormatDormouse, "":
		return json.Marshal(dormouseRequest{
			GameName: r.Name, Namespace: r.Namespace,
			CurrentReplicas: r.Replicas, ReadyReplicas: r.ReadyReplicas,
			Players: r.Players, Capacity: r.Capacity,
		})
	case FormatAgones:
		return json.Marshal(agonesReview{Request: agonesRequest{
			UID: uid, Name: r.Name, Namespace: r.Namespace,
			Status: agonesStatus{
				Replicas:          r.Replicas,
				ReadyReplicas:     max(0, r.ReadyReplicas-r.AllocatedReplicas),
				AllocatedReplicas: r.AllocatedReplicas,
			},
			Labels: bounded(r.Labels), Annotations: bounded(r.Annotations),
		}})
	}
	return nil, failure(BadEndpoint, "There is no format %q: it is %s or %s",
		text.Plain(string(format), maxQuoted), FormatDormouse, FormatAgones)
}

// bounded leaves out what kubectl apply keeps there, and what is too long.
func bounded(all map[string]string) map[string]string {
	some := map[string]string{}
	left := maxEntries
	for _, name := range slices.Sorted(maps.Keys(all)) {
		entry, err := json.Marshal(all[name])
		size := len(name) + len(entry)
		if err != nil || name == corev1.LastAppliedConfigAnnotation || size > maxEntry || size > left {
			continue
		}
		some[name] = all[name]
		left -= size
	}
	return some
}
