package report

import (
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

// memoryOf is what a sidecar says in reportapi.MemoryHeader; nil where it says nothing, as those of
// earlier versions, or what can't be.
func memoryOf(header []byte) *reportapi.Memory {
	m := &reportapi.Memory{}
	if len(header) == 0 || len(header) > reportapi.MaxMemoryBytes || json.Unmarshal(header, m) != nil {
		return nil
	}
	switch m.Phase {
	case "", v1alpha1.GameStarting, v1alpha1.GameReady, v1alpha1.GameAllocated, v1alpha1.GameReserved:
		return m
	case v1alpha1.GameShutdown, v1alpha1.GameUnhealthy:
	}
	return nil
}

// remember writes a sidecar's memory into the status.
func remember(g *v1alpha1.GameStatus, m *reportapi.Memory) {
	if m == nil {
		return
	}
	g.Phase, g.CountsPlayers, g.Leaving = m.Phase, m.CountsPlayers, m.Leaving
	if m.Started != nil {
		g.Started = &metav1.Time{Time: m.Started.UTC().Truncate(time.Second)}
	}
}

// recall is the memory that a status has; nil: none.
func recall(g *v1alpha1.GameStatus) *reportapi.Memory {
	m := reportapi.Memory{Phase: g.Phase, Started: timeOf(g.Started), CountsPlayers: g.CountsPlayers, Leaving: g.Leaving}
	if m == (reportapi.Memory{}) {
		return nil
	}
	return &m
}
