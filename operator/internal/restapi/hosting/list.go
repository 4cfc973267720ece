package hosting

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// Get is a server, as the API server has it.
func (h *Hosting) Get(ctx context.Context, id int64) (Server, error) {
	s, err := h.read(ctx, id)
	if err != nil {
		return Server{}, err
	}
	return h.look(ctx, h.Client, s)
}

// look reads what belongs to a server.
func (h *Hosting) look(ctx context.Context, from client.Reader, s *v1alpha1.Server) (Server, error) {
	key := client.ObjectKeyFromObject(s)
	es, svc := &v1alpha1.ElasticService{}, &corev1.Service{}
	if err := from.Get(ctx, key, es); apierrors.IsNotFound(err) {
		es = nil
	} else if err != nil {
		return Server{}, fmt.Errorf("read ElasticService %s: %w", key, err)
	}
	if err := from.Get(ctx, key, svc); apierrors.IsNotFound(err) {
		svc = nil
	} else if err != nil {
		return Server{}, fmt.Errorf("read Service %s: %w", key, err)
	}
	v := view(s, es, svc)
	if es != nil && es.Status.Saved != nil && h.Money != nil {
		v.MoneySaved = h.Money(es.Status.Saved)
	}
	v.Address = h.address(ctx, v, es, svc)
	return v, nil
}

// address is where players reach a server: by its name at a front, at its load balancer, or at the
// nodes.
func (h *Hosting) address(ctx context.Context, v Server, es *v1alpha1.ElasticService, svc *corev1.Service) string {
	switch {
	case es != nil && es.Spec.Front != nil && len(es.Spec.Front.Hosts) > 0:
		return string(es.Spec.Front.Hosts[0])
	case v.Address != "":
		return v.Address
	case svc != nil && svc.Spec.Type == corev1.ServiceTypeNodePort && h.PublicAddress == "" && h.Nodes != nil:
		return h.Nodes.Get(ctx)
	case svc != nil && svc.Spec.Type == corev1.ServiceTypeNodePort:
		return h.PublicAddress
	}
	return ""
}

// Filter is which servers a list has.
type Filter struct {
	// Game and State, if they are given, are the servers' own.
	Game, State string
	// After is the number of the last server of the page before; 0 for the first page.
	After int64
	// Limit is how many a page has at most.
	Limit int
}

// List is a page of servers in the order of their numbers, and whether there are more. It is read
// from memory, which may lag behind by a moment.
func (h *Hosting) List(ctx context.Context, f Filter) ([]Server, bool, error) {
	var all v1alpha1.ServerList
	opts := []client.ListOption{client.InNamespace(h.Namespace), client.HasLabels{wellknown.HostedGameLabel}}
	if f.Game != "" {
		opts = append(opts, client.MatchingLabels{wellknown.HostedGameLabel: f.Game})
	}
	if err := h.Cached.List(ctx, &all, opts...); err != nil {
		return nil, false, fmt.Errorf("list the servers: %w", err)
	}
	items := slices.DeleteFunc(all.Items, func(s v1alpha1.Server) bool {
		id, ok := ID(s.Name)
		return !ok || id <= f.After
	})
	slices.SortFunc(items, func(a, b v1alpha1.Server) int {
		x, _ := ID(a.Name)
		y, _ := ID(b.Name)
		return cmp.Compare(x, y)
	})
	page := []Server{}
	for i := range items {
		v, err := h.look(ctx, h.Cached, &items[i])
		if err != nil {
			return nil, false, err
		}
		if f.State != "" && v.State != f.State {
			continue
		}
		if len(page) == f.Limit {
			return page, true, nil
		}
		page = append(page, v)
	}
	return page, false, nil
}

// Pod is the name of a server's Pod, and of its game's container.
func (h *Hosting) Pod(ctx context.Context, id int64) (pod, container string, err error) {
	s, err := h.read(ctx, id)
	if err != nil {
		return "", "", err
	}
	c := game(&s.Spec)
	if s.Status.PodName == "" || c == nil {
		return "", "", failf(Conflict, "id", "server %d has no pod now, so it has no log: start it first", id)
	}
	return s.Status.PodName, c.Name, nil
}
