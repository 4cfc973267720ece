package hosting

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// Seen is a server as it was last seen in memory, and whether there is one.
func (h *Hosting) Seen(ctx context.Context, id int64) (Server, bool, error) {
	s := &v1alpha1.Server{}
	err := h.Cached.Get(ctx, h.key(id), s)
	if apierrors.IsNotFound(err) || err == nil && s.Labels[wellknown.HostedGameLabel] == "" {
		return Server{}, false, nil
	}
	if err != nil {
		return Server{}, false, fmt.Errorf("read Server %s: %w", h.key(id), err)
	}
	v, err := h.look(ctx, h.Cached, s)
	return v, err == nil, err
}

// Games are the names of the games that are offered.
func (h *Hosting) Games(ctx context.Context) ([]string, error) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("GameTypeList"))
	if err := h.Client.List(ctx, &list, client.InNamespace(h.Namespace), client.HasLabels{wellknown.CatalogLabel}, client.Limit(maxGames)); err != nil {
		return nil, fmt.Errorf("list the games: %w", err)
	}
	var names []string
	for i := range list.Items {
		if list.Items[i].Labels[wellknown.CatalogLabel] != "false" {
			names = append(names, list.Items[i].Name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// maxGames bounds how many games are listed.
const maxGames = 500

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
	v := view(s, es, svc, h.Now())
	if es != nil && es.Spec.Front != nil {
		if err := showFront(ctx, from, s, es, svc, v.Ports); err != nil {
			return Server{}, err
		}
	}
	if number, err := h.filesNumber(ctx, from, s); err != nil {
		return Server{}, err
	} else if number != 0 {
		v.Ports[SFTP] = number
	}
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
	// Text, if it is given, is a part of the name, the game or the state, in any case.
	Text string
	// After is the number of the last server of the page before; 0 for the first page.
	After int64
	// Limit is how many a page has at most.
	Limit int
}

// List is a page of servers in the order of their numbers, and whether there are more. It is read
// from memory, which may lag behind by a moment.
func (h *Hosting) List(ctx context.Context, f Filter) ([]Server, bool, error) {
	var all v1alpha1.ServerList
	// They are looked at, and not changed.
	opts := []client.ListOption{client.InNamespace(h.Namespace), client.HasLabels{wellknown.HostedGameLabel}, client.UnsafeDisableDeepCopy}
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
		if f.State != "" && v.State != f.State || f.Text != "" && !v.has(f.Text) {
			continue
		}
		if len(page) == f.Limit {
			return page, true, nil
		}
		page = append(page, v)
	}
	return page, false, nil
}

// has reports whether a text is a part of the server's name, game or state.
func (s *Server) has(text string) bool {
	return strings.Contains(strings.ToLower(s.Name+"\n"+s.Game+"\n"+s.State), strings.ToLower(text))
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
