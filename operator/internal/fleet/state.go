package fleet

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/pending"
	"dormouse.dev/dormouse/operator/internal/templatehash"
)

// state is the controller's memory of one Fleet between passes. All of it can be lost.
type state struct {
	// generation is that of the spec whose template has the hash template.
	generation int64
	template   string
	// compared are Servers whose template had to be compared in full.
	compared map[types.UID]comparison
	backoff  backoff
	first    firstServers
	// starts and going are the Servers that were made and deleted a moment ago.
	starts, going times
	pacing        pacing
	// disksReported is set once the disks that earlier Servers left were looked for.
	disksReported bool
	// status writes the Fleet's status.
	status kit.PlayersStatus
	// statusPutOff is set where the last pass left the status to the next: the Servers'
	// controller goes on at once with what that pass changed, and a player may wait for it.
	statusPutOff bool

	// mu guards writes while calls are made concurrently.
	mu     sync.Mutex
	writes pending.Writes[server]
}

// follow resets the delays when the template has changed: it may be fixed, and then nobody
// should have to wait.
func (m *state) follow(f *v1alpha1.Fleet) {
	if m.generation == f.Generation {
		return
	}
	if hash := templatehash.Of(f.Spec.Template); hash != m.template {
		m.backoff.forgive()
		m.template = hash
	}
	m.generation = f.Generation
}
