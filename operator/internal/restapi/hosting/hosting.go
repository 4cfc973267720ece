package hosting

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"
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
	// Now is the clock.
	Now func() time.Time
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
	if value, offered := gt.Labels[wellknown.CatalogLabel]; err != nil || !offered || value == "false" {
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
	if want.Disk == 0 {
		want.Disk = ownDisk(gt)
	}
	s := buildServer(h.Namespace, id, want, gt)
	err = h.Client.Create(ctx, s)
	created := err == nil
	if apierrors.IsAlreadyExists(err) {
		s, err = h.change(ctx, id)
		if Is(err, NotFound) {
			return false, busy(id)
		}
		if err != nil {
			return false, err
		}
		if has := wantOf(s); has != want {
			return false, failf(Conflict, "id", "server %d is there already, with ram_gb %d, disk_gb %d and game %q: choose another id, or change it with PATCH", id, has.RAM, has.Disk, has.Game)
		}
	} else if err != nil {
		return false, fmt.Errorf("create Server %s: %w", h.key(id), err)
	}
	if _, err = h.ensure(ctx, id, ""); Is(err, NotFound) {
		err = busy(id)
	}
	return created, err
}

// tries bounds how often a call begins anew because somebody else changed a server at the same time.
const tries = 5

// ensure brings a server's Service and ElasticService to what they should be, with the port of a role
// reached from outside, if that is given. It returns the Service.
//
// Others may do so at the same time, for another call of theirs. So each write is of what was read,
// and it is done once a look afterwards finds what the Server, as it is then, asks for.
func (h *Hosting) ensure(ctx context.Context, id int64, role string) (*corev1.Service, error) {
	for n := range tries {
		s, err := h.change(ctx, id)
		if err != nil {
			return nil, err
		}
		have, es, err := h.parts(ctx, s)
		if err != nil {
			return nil, err
		}
		gt, err := h.template(ctx, s.Labels[wellknown.HostedGameLabel])
		if Is(err, Invalid) && have != nil && es != nil && (role == "" || shows(s, have, role)) {
			// A server outlives the offer of its game.
			return have, h.keepAsleep(ctx, s, es)
		}
		if err != nil {
			return nil, err
		}
		// The ports are those that the server was made with, as the game says them now.
		gt = gt.DeepCopy()
		now := gt.Spec.Template.Spec.Ports
		gt.Spec.Template.Spec = *s.Spec.DeepCopy()
		settle(gt.Spec.Template.Spec.Ports, now, have)
		if role != "" && portOf(&gt.Spec.Template.Spec, role) < 0 {
			return nil, failf(NotFound, "port", "the game of server %d has no port %s", id, role)
		}
		asked := askedPorts(have, role)
		svc := buildService(s, gt, serviceType(gt, have, role), asked, have)
		if n > 0 && settled(svc, have) && es != nil && kept(es) == !runs(s) {
			return have, nil
		}
		err = h.writeService(ctx, svc, have)
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		es = buildElasticService(s, gt, asked, svc.Spec.Ports)
		if err := patch.Apply(ctx, h.Client, fieldOwner, es); err != nil {
			return nil, err
		}
		if err := h.keepAsleep(ctx, s, es); err != nil {
			return nil, err
		}
	}
	return nil, busy(id)
}

// writeService writes a server's Service as it should be, unless somebody else wrote it since it was
// read: that is a conflict, or one that exists already where none was read.
func (h *Hosting) writeService(ctx context.Context, svc, have *corev1.Service) error {
	if have == nil {
		// Apply would also write over one that was made meanwhile.
		if err := h.Client.Create(ctx, svc, client.FieldOwner(fieldOwner)); err != nil {
			return fmt.Errorf("create Service %s: %w", client.ObjectKeyFromObject(svc), err)
		}
		return nil
	}
	// What Create wrote, Apply couldn't take away.
	body, err := csaupgrade.UpgradeManagedFieldsPatch(have, sets.New(fieldOwner), fieldOwner)
	if err != nil {
		return fmt.Errorf("read whose the fields of Service %s are: %w", client.ObjectKeyFromObject(have), err)
	}
	if body != nil {
		if err := h.Client.Patch(ctx, have, client.RawPatch(types.JSONPatchType, body), client.FieldOwner(fieldOwner)); err != nil {
			return fmt.Errorf("say whose the fields of Service %s are: %w", client.ObjectKeyFromObject(have), err)
		}
	}
	svc.ResourceVersion = have.ResourceVersion
	return patch.Apply(ctx, h.Client, fieldOwner, svc)
}

// settled reports whether a Service has the type and the ports that it should have.
func settled(want, have *corev1.Service) bool {
	if have == nil || have.Spec.Type != want.Spec.Type || len(have.Spec.Ports) != len(want.Spec.Ports) {
		return false
	}
	for _, w := range want.Spec.Ports {
		if !slices.ContainsFunc(have.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == w.Name && p.Port == w.Port }) {
			return false
		}
	}
	return true
}

// parts are a server's Service and ElasticService; nil where there is none.
func (h *Hosting) parts(ctx context.Context, s *v1alpha1.Server) (*corev1.Service, *v1alpha1.ElasticService, error) {
	svc, es := &corev1.Service{}, &v1alpha1.ElasticService{}
	there := func(o client.Object, kind string) (bool, error) {
		err := h.Client.Get(ctx, client.ObjectKeyFromObject(s), o)
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("read %s %s: %w", kind, client.ObjectKeyFromObject(s), err)
		}
		return true, own(s, o, kind)
	}
	isService, err := there(svc, "Service")
	if err != nil {
		return nil, nil, err
	}
	isElastic, err := there(es, "ElasticService")
	if err != nil {
		return nil, nil, err
	}
	if !isService {
		svc = nil
	}
	if !isElastic {
		es = nil
	}
	return svc, es, nil
}

// own returns an error unless an object is the server's.
func own(s *v1alpha1.Server, o client.Object, kind string) error {
	by := metav1.GetControllerOf(o)
	switch {
	case by != nil && by.UID == s.UID && o.GetDeletionTimestamp().IsZero():
		return nil
	case by != nil && by.UID == s.UID, by != nil && by.Kind == "Server" && o.GetLabels()[wellknown.HostedGameLabel] != "":
		// It is of the one before, and the garbage collector comes for it.
		return failf(Busy, "", "%s %s of an earlier server is still being deleted: send the same request again", kind, s.Name)
	}
	return failf(Conflict, "id", "%s %s in namespace %s wasn't made by this API, which leaves it alone: choose another id", kind, s.Name, s.Namespace)
}
