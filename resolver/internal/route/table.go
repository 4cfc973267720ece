package route

import (
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// Sink takes routes as they change. It is called by one goroutine at a time.
type Sink interface {
	// Update takes a new route or a new version of one.
	Update(*Route)
	// Remove ends a route.
	Remove(types.UID)
	// Players takes how many play on a pod of a route that has a Balance; nil: that isn't known
	// any more.
	Players(route, pod types.UID, players *Players)
}

// claim is a resolver port that a route wants.
type claim struct {
	network Network
	port    int32
}

// Table keeps the latest ElasticServices and slices and passes changes to its sink. A change
// costs only the routes that it affects.
type Table struct {
	sink Sink
	now  func() time.Time

	mu     sync.Mutex
	routes map[types.UID]*Route
	// names finds the route of a name. The name may come back with another UID.
	names map[types.NamespacedName]types.UID
	// claims are the routes that want a resolver port, the oldest first.
	claims map[claim][]types.UID
	// hosts are the routes that want a host name at a front, the oldest first.
	hosts map[hostClaim][]types.UID
	// private finds the routes by their private Service.
	private map[types.NamespacedName]types.UID
	// slices are the private Services' slices by name.
	slices map[types.NamespacedName]map[string]*discoveryv1.EndpointSlice
	// draining are the Servers that take no new players; a Server's pod has its name.
	draining map[types.NamespacedName]bool
	// early are the Servers whose games take players; a Server's pod has its name.
	early map[types.NamespacedName]early
	// silent are the pods whose games say nothing of themselves, by their Servers' names.
	silent map[types.NamespacedName]types.UID
	// players are the Servers' last reports by the Server's name.
	players map[types.NamespacedName]reported
	// targets finds the routes by what they scale.
	targets map[Target][]types.UID
	// shown is what the sink was given.
	shown map[types.UID]*Route
}

// NewTable makes an empty table.
func NewTable(sink Sink) *Table {
	return &Table{
		sink:     sink,
		routes:   map[types.UID]*Route{},
		names:    map[types.NamespacedName]types.UID{},
		claims:   map[claim][]types.UID{},
		hosts:    map[hostClaim][]types.UID{},
		private:  map[types.NamespacedName]types.UID{},
		slices:   map[types.NamespacedName]map[string]*discoveryv1.EndpointSlice{},
		draining: map[types.NamespacedName]bool{},
		early:    map[types.NamespacedName]early{},
		silent:   map[types.NamespacedName]types.UID{},
		now:      time.Now,
		players:  map[types.NamespacedName]reported{},
		targets:  map[Target][]types.UID{},
		shown:    map[types.UID]*Route{},
	}
}

// SetService takes a new or changed ElasticService.
func (t *Table) SetService(es *v1alpha1.ElasticService) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name := types.NamespacedName{Namespace: es.Namespace, Name: es.Name}
	// A watch may show a deletion and a creation as one change.
	if was, ok := t.names[name]; ok && was != es.UID {
		t.remove(was)
	}
	r := Build(es)
	touched := t.unclaim(r.UID)
	t.routes[r.UID] = r
	t.names[name] = r.UID
	t.setTarget(r, true)
	if r.PrivateService != "" {
		t.private[types.NamespacedName{Namespace: r.Namespace, Name: r.PrivateService}] = r.UID
	}
	touched = append(touched, t.claim(r)...)
	t.show(append(touched, r.UID))
}

// DeleteService forgets an ElasticService.
func (t *Table) DeleteService(namespace, name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if uid, ok := t.names[types.NamespacedName{Namespace: namespace, Name: name}]; ok {
		t.remove(uid)
	}
}

// SetSlice takes a new or changed slice. Only slices that Kubernetes wrote for a private
// Service count.
func (t *Table) SetSlice(slice *discoveryv1.EndpointSlice) {
	// With slices of others anybody who may create one could make the resolver connect to any address, whereas
	// Kubernetes protects its own.
	if slice.Labels[discoveryv1.LabelManagedBy] != wellknown.EndpointSliceController || slice.Labels[wellknown.PrivateServiceLabel] == "" {
		// The slice may have counted before.
		t.DeleteSlice(slice)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	owner := ownerOf(slice)
	if t.slices[owner] == nil {
		t.slices[owner] = map[string]*discoveryv1.EndpointSlice{}
	}
	t.slices[owner][slice.Name] = slice
	t.findServing(slice)
	if uid, ok := t.private[owner]; ok {
		t.show([]types.UID{uid})
	}
}

// DeleteSlice forgets a slice.
func (t *Table) DeleteSlice(slice *discoveryv1.EndpointSlice) {
	t.mu.Lock()
	defer t.mu.Unlock()
	owner := ownerOf(slice)
	if t.slices[owner][slice.Name] == nil {
		return
	}
	delete(t.slices[owner], slice.Name)
	if len(t.slices[owner]) == 0 {
		delete(t.slices, owner)
	}
	if uid, ok := t.private[owner]; ok {
		t.show([]types.UID{uid})
	}
}

func ownerOf(slice *discoveryv1.EndpointSlice) types.NamespacedName {
	return types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
}

// remove ends a route and gives its ports to the routes that waited for them.
func (t *Table) remove(uid types.UID) {
	r := t.routes[uid]
	if r == nil {
		return
	}
	touched := t.unclaim(uid)
	delete(t.routes, uid)
	delete(t.names, types.NamespacedName{Namespace: r.Namespace, Name: r.Name})
	delete(t.shown, uid)
	// The old route's listeners close before others want their ports.
	t.sink.Remove(uid)
	t.show(touched)
}

// claim adds a route's ports and hosts and returns the other routes that claim them, too.
func (t *Table) claim(r *Route) (touched []types.UID) {
	for _, p := range r.Ports {
		c := claim{p.Network, p.ResolverPort}
		if slices.Contains(t.claims[c], r.UID) {
			continue
		}
		touched = append(touched, t.claims[c]...)
		t.claims[c] = append(t.claims[c], r.UID)
		slices.SortFunc(t.claims[c], t.byAge)
	}
	return append(touched, t.claimHosts(r)...)
}

// byAge orders routes, the oldest first.
func (t *Table) byAge(a, b types.UID) int {
	if older(t.routes[a], t.routes[b]) {
		return -1
	}
	return 1
}

// unclaim removes a route's ports, hosts, target and private Service from the indexes.
func (t *Table) unclaim(uid types.UID) (touched []types.UID) {
	r := t.routes[uid]
	if r == nil {
		return nil
	}
	t.setTarget(r, false)
	private := types.NamespacedName{Namespace: r.Namespace, Name: r.PrivateService}
	if t.private[private] == uid {
		delete(t.private, private)
	}
	for _, p := range r.Ports {
		c := claim{p.Network, p.ResolverPort}
		rest := slices.DeleteFunc(t.claims[c], func(other types.UID) bool { return other == uid })
		if len(rest) == 0 {
			delete(t.claims, c)
			continue
		}
		t.claims[c] = rest
		touched = append(touched, rest...)
	}
	return append(touched, t.unclaimHosts(r)...)
}

// show gives the sink the routes that differ from what it was given before. Those that lose a
// port or a host come before those that gain it.
func (t *Table) show(uids []types.UID) {
	var losing, others []*Route
	before := map[types.UID]*Route{}
	seen := map[types.UID]bool{}
	for _, uid := range uids {
		if seen[uid] || t.routes[uid] == nil {
			continue
		}
		seen[uid] = true
		r := t.complete(t.routes[uid])
		was := t.shown[uid]
		if reflect.DeepEqual(was, r) {
			continue
		}
		t.shown[uid], before[uid] = r, was
		if losesPort(was, r) || was != nil && losesHost(was.Front, r.Front) {
			losing = append(losing, r)
		} else {
			others = append(others, r)
		}
	}
	for _, r := range append(losing, others...) {
		t.sink.Update(r)
		t.tellAllPlayers(before[r.UID], r)
	}
}

func losesPort(was, is *Route) bool {
	if was == nil {
		return false
	}
	return slices.ContainsFunc(was.Ports, func(p Port) bool {
		return p.Taken == "" && !slices.ContainsFunc(is.Ports, func(q Port) bool {
			return q.Taken == "" && q.Network == p.Network && q.ResolverPort == p.ResolverPort
		})
	})
}

// complete fills in what comes from other objects.
func (t *Table) complete(r *Route) *Route {
	full := *r
	full.Ports = slices.Clone(r.Ports)
	full.Front = t.ownHosts(r)
	var all []*discoveryv1.EndpointSlice
	for _, slice := range t.slices[types.NamespacedName{Namespace: r.Namespace, Name: r.PrivateService}] {
		all = append(all, slice)
	}
	o := overrides{early: t.early, now: t.now(), draining: t.draining}
	if r.dialsUnasked() {
		o.silent = t.silent
	}
	if len(r.PodsBeforeSleep) > 0 {
		o.beforeSleep = map[types.UID]bool{}
	}
	for _, uid := range r.PodsBeforeSleep {
		o.beforeSleep[uid] = true
	}
	for i := range full.Ports {
		p := &full.Ports[i]
		p.Backends = Backends(all, p.Name, p.Network, o)
		if len(r.WaitsFor) > 0 {
			closeAll(p.Backends)
		}
		first := t.routes[t.claims[claim{p.Network, p.ResolverPort}][0]]
		switch {
		case first.UID != r.UID:
			p.Taken = fmt.Sprintf("port %d is served for the older ElasticService %s/%s", p.ResolverPort, first.Namespace, first.Name)
		case slices.ContainsFunc(full.Ports[:i], func(q Port) bool {
			return q.Network == p.Network && q.ResolverPort == p.ResolverPort
		}):
			p.Taken = fmt.Sprintf("port %d is served for an earlier port of the same Service", p.ResolverPort)
		}
	}
	return &full
}
