package setup

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/operator/internal/options"
	"dormouse.dev/dormouse/operator/internal/outbound"
)

// setupOutbound finds out which addresses may be asked for users.
func setupOutbound(mgr ctrl.Manager, o options.Options) (outbound.Addresses, error) {
	reserved := newReservedAddresses(mgr)
	if err := mgr.Add(reserved); err != nil {
		return outbound.Addresses{}, fmt.Errorf("add the reserved addresses: %w", err)
	}
	return outbound.Addresses{Networks: o.OutboundNetworks, Reserved: reserved.list}, nil
}

// servicesOf finds Services in a cache; nil: there is none of that name.
func servicesOf(c client.Reader) func(ctx context.Context, namespace, name string) (*corev1.Service, error) {
	return func(ctx context.Context, namespace, name string) (*corev1.Service, error) {
		svc := &corev1.Service{}
		err := c.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, svc)
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil //nolint:nilnil // it is no error
		case err != nil:
			return nil, fmt.Errorf("read Service %s/%s: %w", namespace, name, err)
		}
		return svc, nil
	}
}

// reservedEvery is how often the API server's addresses are looked up.
const reservedEvery = 5 * time.Minute

// reservedAddresses are those that no user's URL or Service may have: the API server's and the operator's own.
type reservedAddresses struct {
	cached, live client.Reader
	// always are those that the process itself knows: its own, and the one at which it reaches the
	// API server.
	always []netip.Addr
	looked atomic.Pointer[[]netip.Addr]
}

// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=list

func newReservedAddresses(mgr ctrl.Manager) *reservedAddresses {
	r := &reservedAddresses{cached: mgr.GetClient(), live: mgr.GetAPIReader()}
	if u, err := url.Parse(mgr.GetConfig().Host); err == nil {
		r.always = addAddress(r.always, u.Hostname())
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		ctrl.Log.WithName("outbound").Error(err, "find the operator's own addresses")
	}
	for _, address := range own {
		if prefix, err := netip.ParsePrefix(address.String()); err == nil {
			r.always = append(r.always, prefix.Addr())
		}
	}
	return r
}

// Start looks the API server's addresses up until ctx ends.
func (r *reservedAddresses) Start(ctx context.Context) error {
	tick := time.NewTicker(reservedEvery)
	defer tick.Stop()
	for {
		r.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// NeedLeaderElection is as for who asks.
func (*reservedAddresses) NeedLeaderElection() bool { return true }

// look takes in the addresses of the Service kubernetes. An operator that is limited to some
// namespaces may not read them: it knows one of them all the same.
func (r *reservedAddresses) look(ctx context.Context) {
	list := slices.Clone(r.always)
	svc := &corev1.Service{}
	if err := r.cached.Get(ctx, types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, svc); err == nil {
		for _, ip := range svc.Spec.ClusterIPs {
			list = addAddress(list, ip)
		}
	}
	var slicesOf discoveryv1.EndpointSliceList
	err := r.live.List(ctx, &slicesOf, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{discoveryv1.LabelServiceName: "kubernetes"})
	if err != nil {
		if r.looked.CompareAndSwap(nil, &list) {
			ctrl.Log.WithName("outbound").Info("the API server's endpoints can't be read; its other addresses are never asked for users", "cause", err.Error())
		}
		return
	}
	for i := range slicesOf.Items {
		for _, e := range slicesOf.Items[i].Endpoints {
			for _, address := range e.Addresses {
				list = addAddress(list, address)
			}
		}
	}
	r.looked.Store(&list)
}

func addAddress(list []netip.Addr, text string) []netip.Addr {
	if addr, err := netip.ParseAddr(text); err == nil {
		return append(list, addr)
	}
	return list
}

// list are the reserved addresses, as far as they are known.
func (r *reservedAddresses) list() []netip.Addr {
	if looked := r.looked.Load(); looked != nil {
		return *looked
	}
	return r.always
}
