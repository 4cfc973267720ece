package dataplane

import (
	"fmt"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/resolver/internal/dataplane/tcp"
	"dormouse.dev/dormouse/resolver/internal/listener"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// front is a front at work. The Server's lock guards it.
type front struct {
	*tcp.Front
	listener *listener.Listener
	// parts are the services' parts of it. The owner's settings are those in the part of
	// newest.
	parts  map[*served]*route.Front
	newest *served
}

// newFront opens a front. The caller has the Server's lock.
func (s *Server) newFront(part *route.Front) *front {
	key := part.FrontKey
	f := &front{Front: tcp.NewFront(s.Shared, part), parts: map[*served]*route.Front{}}
	s.named[nameOfFront(key)]++
	f.listener = listener.Start(func() logr.Logger {
		return s.Log.WithValues("namespace", key.Namespace, "front", key.Service, "resolverPort", key.ResolverPort)
	}, f.Open)
	return f
}

func nameOfFront(key route.FrontKey) types.NamespacedName {
	return types.NamespacedName{Namespace: key.Namespace, Name: key.Service}
}

// setFront leads the hosts of a route to its port, and the hosts that it has no more nowhere. A
// nil route has none. It is called after the ports have been set, with the Server's lock.
func (s *Server) setFront(sv *served, was, is *route.Front) {
	var now *route.Front
	if is != nil && len(is.Hosts) > 0 {
		if p := sv.portNamed(is.Port); p != nil && p.tcp != nil {
			now = is
			if s.fronts[now.FrontKey] == nil {
				s.fronts[now.FrontKey] = s.newFront(now)
			}
			s.fronts[now.FrontKey].take(sv, now)
			s.fronts[now.FrontKey].Lead(now.Hosts, p.tcp)
		}
	}
	if was == nil || s.fronts[was.FrontKey] == nil {
		return
	}
	stays := now != nil && now.FrontKey == was.FrontKey
	// Hosts that stay are never dropped, or their clients would be refused meanwhile.
	s.fronts[was.FrontKey].Drop(slices.DeleteFunc(slices.Clone(was.Hosts), func(host string) bool {
		return stays && slices.Contains(now.Hosts, host)
	}), sv.Service)
	if !stays {
		s.fronts[was.FrontKey].drop(sv)
	}
	s.endFront(was.FrontKey)
}

// take takes in a service's part, and uses its settings unless another part's are newer. A
// service that has not yet seen the owner's latest settings changes nothing for the others.
func (f *front) take(sv *served, part *route.Front) {
	f.parts[sv] = part
	if newest := f.parts[f.newest]; f.newest == sv || newest == nil || part.SettingsVersion > newest.SettingsVersion {
		f.choose(sv)
	}
}

// drop forgets a service's part.
func (f *front) drop(sv *served) {
	delete(f.parts, sv)
	if f.newest == sv {
		f.choose(nil)
	}
}

// choose uses the settings of the newest part, of this one among equals.
func (f *front) choose(sv *served) {
	for other, part := range f.parts {
		if best := f.parts[sv]; best == nil || part.SettingsVersion > best.SettingsVersion {
			sv = other
		}
	}
	if f.newest = sv; sv != nil {
		f.Owner(f.parts[sv])
	}
}

// endFront closes a front that no host name leads through any more.
func (s *Server) endFront(key route.FrontKey) {
	f := s.fronts[key]
	if f == nil || !f.LeadsNowhere() {
		return
	}
	delete(s.fronts, key)
	f.listener.Close()
	s.end([]*listener.Listener{f.listener})
	s.unname(nameOfFront(key))
}

// describeFront describes a route's part of a front. The caller has the Server's lock.
func (s *Server) describeFront(part *route.Front) informerapi.RoutePort {
	out := informerapi.RoutePort{
		Name: part.Port, Protocol: string(v1alpha1.ProtocolTCP), Port: part.ResolverPort,
		Front: part.Namespace + "/" + part.Service,
	}
	f := s.fronts[part.FrontKey]
	if f == nil {
		out.Error = fmt.Sprintf("no name of the front %s leads to port %q", out.Front, part.Port)
		return out
	}
	var err error
	if out.Listening, err = f.listener.State(); err != nil {
		out.Error = err.Error()
	}
	return out
}
