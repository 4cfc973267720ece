package hosting

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/patch"
)

// fieldOwner is who writes the Services and ElasticServices of servers.
const fieldOwner = "dormouse-api"

// Hosting manages the servers of a namespace. Its methods may be called at the same time, on any
// number of replicas.
type Hosting struct {
	// Client reads from the API server itself, so that all replicas see the same.
	Client client.Client
	// Cached has the namespace's objects in memory, for lists.
	Cached client.Reader
	// Namespace is where the servers are.
	Namespace string
	// PublicAddress is where players reach node ports; empty: at a node's own address, which Nodes
	// finds.
	PublicAddress string
	Nodes         *NodeAddress
	// Money turns what was saved into an amount; empty where there are no prices.
	Money func(*v1alpha1.Saved) string
}

func (h *Hosting) key(id int64) client.ObjectKey {
	return client.ObjectKey{Namespace: h.Namespace, Name: Name(id)}
}

// read reads a server.
func (h *Hosting) read(ctx context.Context, id int64) (*v1alpha1.Server, error) {
	s := &v1alpha1.Server{}
	err := h.Client.Get(ctx, h.key(id), s)
	switch {
	case apierrors.IsNotFound(err):
		return nil, absent(id)
	case err != nil:
		return nil, fmt.Errorf("read Server %s: %w", h.key(id), err)
	case s.Labels[wellknown.HostedGameLabel] == "":
		return nil, failf(Conflict, "id", "Server %s in namespace %s wasn't made by this API, which leaves it alone: choose another id", s.Name, s.Namespace)
	}
	return s, nil
}

func absent(id int64) error {
	return failf(NotFound, "id", "there is no server %d", id)
}

// change reads a server that is to be changed.
func (h *Hosting) change(ctx context.Context, id int64) (*v1alpha1.Server, error) {
	s, err := h.read(ctx, id)
	if err == nil && !s.DeletionTimestamp.IsZero() {
		return nil, failf(Conflict, "id", "server %d is being deleted, which waits for its players: try again when it is gone", id)
	}
	return s, err
}

// template reads the GameType of a game that is offered.
func (h *Hosting) template(ctx context.Context, name string) (*v1alpha1.GameType, error) {
	gt := &v1alpha1.GameType{}
	err := h.Client.Get(ctx, client.ObjectKey{Namespace: h.Namespace, Name: name}, gt)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read GameType %s/%s: %w", h.Namespace, name, err)
	}
	if _, offered := gt.Labels[wellknown.CatalogLabel]; err != nil || !offered {
		return nil, failf(Invalid, "game", "no game %q is offered: an administrator offers one with a GameType of that name in namespace %s that has the label %s", name, h.Namespace, wellknown.CatalogLabel)
	}
	return gt, nil
}

// Create makes a server, and reports whether there was none. One that is there already must have
// been asked for in the same words.
func (h *Hosting) Create(ctx context.Context, id int64, want Want) (bool, error) {
	gt, err := h.template(ctx, want.Game)
	if err != nil {
		// A server outlives the offer of its game.
		if s, got := h.change(ctx, id); got == nil && wantOf(s) == want {
			return false, nil
		}
		return false, err
	}
	s := buildServer(h.Namespace, id, want, gt)
	err = h.Client.Create(ctx, s)
	created := err == nil
	if apierrors.IsAlreadyExists(err) {
		if s, err = h.change(ctx, id); err != nil {
			return false, err
		}
		if has := wantOf(s); has != want {
			return false, failf(Conflict, "id", "server %d is there already, with ram_gb %d, disk_gb %d and game %q: choose another id, or change it with PATCH", id, has.RAM, has.Disk, has.Game)
		}
	} else if err != nil {
		return false, fmt.Errorf("create Server %s: %w", h.key(id), err)
	}
	_, err = h.ensure(ctx, s, "")
	return created, err
}

// ensure brings a server's Service and ElasticService to what they should be, with the port of a role
// reached from outside, if that is given. It returns the Service.
func (h *Hosting) ensure(ctx context.Context, s *v1alpha1.Server, role string) (*corev1.Service, error) {
	key := client.ObjectKeyFromObject(s)
	have := &corev1.Service{}
	if err := h.Client.Get(ctx, key, have); apierrors.IsNotFound(err) {
		have = nil
	} else if err != nil {
		return nil, fmt.Errorf("read Service %s: %w", key, err)
	}
	gt, err := h.template(ctx, s.Labels[wellknown.HostedGameLabel])
	if Is(err, Invalid) && have != nil && role == "" {
		return have, h.keepAsleep(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	// The ports are those that the server was made with, as the game says them now.
	ports := gt.Spec.Template.Spec.Ports
	gt = gt.DeepCopy()
	gt.Spec.Template.Spec = *s.Spec.DeepCopy()
	settle(gt.Spec.Template.Spec.Ports, ports)

	if role != "" && portOf(&gt.Spec.Template.Spec, role) < 0 {
		return nil, failf(NotFound, "port", "the game of server %s has no port %s", s.Name, role)
	}
	asked := askedPorts(have, role)
	kind := serviceType(gt, have, role)
	svc := buildService(s, gt, kind, asked, have)
	if err := patch.Apply(ctx, h.Client, fieldOwner, svc); err != nil {
		return nil, err
	}
	if err := patch.Apply(ctx, h.Client, fieldOwner, buildElasticService(s, gt, asked, svc.Spec.Ports)); err != nil {
		return nil, err
	}
	if err := h.Client.Get(ctx, key, svc); err != nil {
		return nil, fmt.Errorf("read Service %s: %w", key, err)
	}
	return svc, nil
}
