// Package disklock keeps a copy of a Server's disks and the start of its game, or of what serves its files, apart, within the
// leader: of the two, whichever comes second sees the other. That a Pod has the disks, or a copy is
// under way, is in the cluster; this table only orders looking there and acting on it.
package disklock

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// Table has who holds which Server's disks.
type Table struct {
	mu sync.Mutex
	// held are the words for those that hold disks; starting counts the Pods that start.
	held     map[types.NamespacedName]string
	starting map[types.NamespacedName]int
	// wanted are the Servers whose games were kept from starting since somebody holds their disks.
	wanted map[types.NamespacedName]bool
	// turns are what copies said that wait for Pods that serve files.
	turns   map[types.NamespacedName]*turn
	changed func(server types.NamespacedName)
	denied  func(server types.NamespacedName)
}

// New makes a table. released is called with a Server whose disks are free again and whose game was
// kept from starting; denied when a game is kept from starting. Both must not block.
func New(released, denied func(server types.NamespacedName)) *Table {
	return &Table{
		held: map[types.NamespacedName]string{}, starting: map[types.NamespacedName]int{}, wanted: map[types.NamespacedName]bool{},
		turns:   map[types.NamespacedName]*turn{},
		changed: released, denied: denied,
	}
}

// Start begins to make a Pod for a Server's game. Where somebody holds the disks, it returns who: a
// phrase such as "Backup survival-1". Else end must be called once the API server has the Pod, or has
// refused it.
func (t *Table) Start(server types.NamespacedName) (end func(), holder string) {
	t.mu.Lock()
	holder = t.held[server]
	if holder == "" {
		end = t.begin(server)
	} else {
		t.wanted[server] = true
	}
	t.mu.Unlock()
	if holder != "" {
		t.denied(server)
	}
	return end, holder
}

// begin counts a Pod that starts until end is called. It is called with the lock.
func (t *Table) begin(server types.NamespacedName) (end func()) {
	t.starting[server]++
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.starting[server]--; t.starting[server] <= 0 {
			delete(t.starting, server)
		}
	})
}

// Hold takes a Server's disks; false: somebody else has them, or a Pod starts in this moment.
// Whoever holds them looks at the API server itself then, whether a Pod has them. Who has them already
// may take them again.
func (t *Table) Hold(server types.NamespacedName, holder string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if has := t.held[server]; t.starting[server] > 0 || has != "" && has != holder {
		return false
	}
	t.held[server] = holder
	if w := t.turns[server]; w != nil {
		w.fresh = false
	}
	return true
}

// Wanted reports whether a game was kept from starting since its disks were taken.
func (t *Table) Wanted(server types.NamespacedName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wanted[server]
}

// Release lets a Server's disks go, if holder has them.
func (t *Table) Release(server types.NamespacedName, holder string) {
	t.mu.Lock()
	if t.held[server] != holder {
		t.mu.Unlock()
		return
	}
	wanted := t.wanted[server]
	delete(t.held, server)
	delete(t.wanted, server)
	if w := t.turns[server]; w != nil && !w.fresh {
		delete(t.turns, server) // it has had its turn
	}
	t.mu.Unlock()
	if wanted {
		t.changed(server)
	}
}
