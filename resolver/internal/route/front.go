package route

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/guard"
)

// FrontKey is one port of a Service that several ElasticServices share.
type FrontKey struct {
	Namespace, Service string
	// ResolverPort is the port on which the resolver listens for it.
	ResolverPort int32
}

// Front is a route's part of such a port.
type Front struct {
	FrontKey
	// Port is the name of the route's own port, to which clients are led.
	Port string
	// Hosts are the names that lead to that port: DNS names in lower case, or with *. before
	// them for all names below, or AllHosts. Names that an older route has are left out.
	Hosts []string
	// Trusted are the sources whose connections begin with a PROXY protocol header, and
	// MaxSessionsPerSource is how many clients of one source there may be; 0: any number. Where
	// the routes of a front differ in these, those with the highest SettingsVersion count.
	Trusted              []netip.Prefix
	MaxSessionsPerSource int32
	SettingsVersion      uint64
	// Guard has the rules of which of the front's clients may wake the service.
	Guard guard.Rules
}

// AllHosts is the name for clients that name no host, or one that no other route has.
const AllHosts = "*"

// frontOf is an ElasticService's part of a front; nil when it has none.
func frontOf(es *v1alpha1.ElasticService) *Front {
	s := es.Status.Front
	if s == nil {
		return nil
	}
	f := &Front{FrontKey: FrontKey{Namespace: s.Namespace, Service: s.Service, ResolverPort: s.ResolverPort}, Port: s.TargetPort}
	for _, host := range s.Hosts {
		f.Hosts = append(f.Hosts, string(host))
	}
	f.Trusted = networks(s.TrustedCIDRs)
	f.SettingsVersion, _ = strconv.ParseUint(s.SettingsVersion, 10, 64) // 0 from an older operator
	if s.SourceIPPreserved {
		f.MaxSessionsPerSource = s.MaxSessionsPerSource
	}
	f.Guard = rulesOf(es, s.SourceIPPreserved)
	return f
}

// maxHost is how long a host name may be, as RFC 1035 has it.
const maxHost = 253

// FindHost looks up a client's host name: first itself, then the longest *. that it is below,
// and then AllHosts. What is no host name has only that: to look up thousands of dots would take long.
func FindHost[T any](hosts map[string]T, name string) (found T, ok bool) {
	if strings.HasPrefix(name, "*") || len(name) > maxHost {
		name = ""
	}
	if found, ok = hosts[name]; ok {
		return found, true
	}
	for {
		_, rest, more := strings.Cut(name, ".")
		if !more {
			found, ok = hosts[AllHosts]
			return found, ok
		}
		if found, ok = hosts["*."+rest]; ok {
			return found, true
		}
		name = rest
	}
}

// hostClaim is a host name that a route wants at a front.
type hostClaim struct {
	front FrontKey
	host  string
}

// claimHosts adds a route's hosts and returns the other routes that claim them, too.
func (t *Table) claimHosts(r *Route) (touched []types.UID) {
	if r.Front == nil {
		return nil
	}
	for _, host := range r.Front.Hosts {
		c := hostClaim{r.Front.FrontKey, host}
		touched = append(touched, t.hosts[c]...)
		t.hosts[c] = append(t.hosts[c], r.UID)
		slices.SortFunc(t.hosts[c], t.byAge)
	}
	return touched
}

// unclaimHosts removes a route's hosts and returns the other routes that claim them.
func (t *Table) unclaimHosts(r *Route) (touched []types.UID) {
	if r.Front == nil {
		return nil
	}
	for _, host := range r.Front.Hosts {
		c := hostClaim{r.Front.FrontKey, host}
		rest := slices.DeleteFunc(t.hosts[c], func(uid types.UID) bool { return uid == r.UID })
		if len(rest) == 0 {
			delete(t.hosts, c)
			continue
		}
		t.hosts[c] = rest
		touched = append(touched, rest...)
	}
	return touched
}

// ownHosts is a route's part of a front with the hosts that no older route has.
func (t *Table) ownHosts(r *Route) *Front {
	if r.Front == nil {
		return nil
	}
	own := *r.Front
	own.Hosts = nil
	for _, host := range r.Front.Hosts {
		if t.hosts[hostClaim{own.FrontKey, host}][0] == r.UID {
			own.Hosts = append(own.Hosts, host)
		}
	}
	return &own
}

// losesHost reports whether a route has lost a host that it had.
func losesHost(was, is *Front) bool {
	if was == nil {
		return false
	}
	return is == nil || was.FrontKey != is.FrontKey ||
		slices.ContainsFunc(was.Hosts, func(host string) bool { return !slices.Contains(is.Hosts, host) })
}
