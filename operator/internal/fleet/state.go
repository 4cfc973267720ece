package fleet

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/pending"
	"dormouse.dev/dormouse/operator/internal/templatehash"
)

// state is what the controller remembers of one Fleet between passes. All of it
// can be lost.
type state struct {
	// generation is that of the spec which template is a hash of.
	generation int64
	template   string
	// compared are Servers whose template had to be compared in full.
	compared map[types.UID]comparison
	backoff  backoff
	first    firstServers
	// status writes the Fleet's.
	status kit.PlayersStatus
	// statusPutOff says that the last pass left the status to the next: what it changed
	// goes on in the Servers' controller at once, and a player may wait for that.
	statusPutOff bool

	// mu guards writes while calls are made side by side.
	mu     sync.Mutex
	writes pending.Writes[server]
}

// follow begins anew with the delays when the template has changed: it may be
// mended, and whoever mended it shouldn't wait.
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
