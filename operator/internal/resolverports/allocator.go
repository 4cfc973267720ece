// Package resolverports assigns resolver ports, by which resolvers know which service a client
// is for, to the ports of ElasticServices and of fronts. The assigned ports are kept in the
// ElasticServices' statuses. The allocator is filled from them once, and nothing else assigns
// ports.
//
// The package only reads the cache. The caller writes the entries that Assign makes.
package resolverports

import (
	"errors"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/obstacle"
)

// Rest is how long a freed resolver port is not assigned again, until no kube-proxy and no
// client uses it for the previous service any more.
const Rest = 10 * time.Minute

// Errors of Allocate.
var (
	// ErrNoPort means that no port is free.
	ErrNoPort        = fmt.Errorf("none from %d to %d is free", wellknown.MinResolverPort, wellknown.MaxResolverPort)
	errNamespaceFull = errors.New("the namespace has as many as it may have")
)

// Allocator assigns resolver ports. It is filled from the ElasticServices' statuses, where the
// ports are kept, those of fronts too.
type Allocator struct {
	cached client.Reader
	learnt sync.Once
	// most is how many ports a namespace may have; 0 is any number. Ports beyond it are kept.
	most int

	mu      sync.Mutex
	counts  map[string]int // by namespace
	owners  map[int32]Owner
	ports   map[Owner]int32
	resting map[int32]time.Time // until when
}

// Owner is one port of one ElasticService.
type Owner struct {
	Namespace string
	UID       types.UID
	Name      string
	Protocol  corev1.Protocol
}

// New makes an allocator that is filled from a cache, which has the indexes of package index.
// most is how many ports a namespace may have; 0: any number.
func New(cached client.Reader, most int) *Allocator {
	return &Allocator{cached: cached, most: most, counts: map[string]int{}, owners: map[int32]Owner{}, ports: map[Owner]int32{}, resting: map[int32]time.Time{}}
}

// Learn takes in a port that is in use according to an object's status, and reports whether it
// is that object's: of two, the one that was learnt first keeps it.
func (a *Allocator) Learn(port int32, owner Owner) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if holder, taken := a.owners[port]; taken {
		return holder == owner
	}
	if _, has := a.ports[owner]; has {
		return false // it has another one
	}
	a.give(port, owner)
	return true
}

func (a *Allocator) give(port int32, owner Owner) {
	a.owners[port], a.ports[owner] = owner, port
	a.counts[owner.Namespace]++
	delete(a.resting, port)
}

// take takes a port back, and lets it rest.
func (a *Allocator) take(now time.Time, port int32) {
	owner := a.owners[port]
	delete(a.owners, port)
	delete(a.ports, owner)
	if a.counts[owner.Namespace]--; a.counts[owner.Namespace] == 0 {
		delete(a.counts, owner.Namespace)
	}
	a.resting[port] = now.Add(Rest)
}

// Allocate returns the port that the owner has, though it may not be in the status yet, or else
// a port that is free and not resting. The search begins at a place that depends on the owner,
// which spreads ports: a new object hardly ever gets a port that another one had just before.
func (a *Allocator) Allocate(now time.Time, owner Owner, inUse func(int32) bool) (int32, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if port, has := a.ports[owner]; has {
		return port, nil
	}
	if a.most > 0 && a.counts[owner.Namespace] >= a.most {
		return 0, errNamespaceFull
	}
	const span = wellknown.MaxResolverPort - wellknown.MinResolverPort + 1
	h := fnv.New32a()
	_, _ = h.Write([]byte(string(owner.UID) + "/" + owner.Name))
	start := h.Sum32() % span
	for i := range uint32(span) {
		port := wellknown.MinResolverPort + int32((start+i)%span)
		if _, taken := a.owners[port]; taken || now.Before(a.resting[port]) || inUse(port) {
			continue
		}
		a.give(port, owner)
		return port, nil
	}
	return 0, ErrNoPort
}

// Taken reports whether a port has an owner.
func (a *Allocator) Taken(port int32) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, taken := a.owners[port]
	return taken
}

// RestsUntil is until when a freed port is not assigned; zero where it may be.
func (a *Allocator) RestsUntil(port int32) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.resting[port]
}

// FreeAll lets all ports of an owner rest, unless somebody uses them again.
func (a *Allocator) FreeAll(now time.Time, uid types.UID, unused func() bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var freed []Owner
	for owner := range a.ports {
		if owner.UID == uid {
			freed = append(freed, owner)
		}
	}
	if len(freed) == 0 || !unused() {
		return
	}
	for _, owner := range freed {
		a.take(now, a.ports[owner])
	}
}

// Free lets a port rest.
func (a *Allocator) Free(now time.Time, port int32, uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if owner, taken := a.owners[port]; taken && owner.UID == uid {
		a.take(now, port)
	}
	for p, until := range a.resting {
		if now.After(until) {
			delete(a.resting, p)
		}
	}
}

// Exhausted is the obstacle that there is no resolver port.
func (a *Allocator) Exhausted(err error, namespace, what string) *obstacle.Obstacle {
	advice := "remove ElasticServices that are no longer needed"
	if errors.Is(err, errNamespaceFull) {
		err = fmt.Errorf("namespace %s has %d, as many as it may have", namespace, a.most)
		advice += " there, or raise the operator's --max-ports-per-namespace"
	}
	return obstacle.New(reasons.PortsExhausted, "There is no resolver port for %s: %s; %s.", what, err, advice)
}
