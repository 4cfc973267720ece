package setup

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	discoveryclient "k8s.io/client-go/kubernetes/typed/discovery/v1"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/operator/internal/options"
	"dormouse.dev/dormouse/operator/internal/outbound"
)

// setupOutbound finds out which addresses may be asked for users.
func setupOutbound(mgr ctrl.Manager, o options.Options) (outbound.Addresses, error) {
	reserved, err := newReservedAddresses(mgr)
	if err != nil {
		return outbound.Addresses{}, err
	}
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

// watchAgain is how long after a watch of the API server's endpoints has ended, or failed, it is begun again, and
// readAgain where the operator may not read or not watch them.
const (
	watchAgain = 10 * time.Second
	readAgain  = 5 * time.Minute
)

// apiService is the Service of the API server.
var apiService = types.NamespacedName{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}

// reservedAddresses are those that no user's URL or Service may have: the API server's and the operator's own.
type reservedAddresses struct {
	// always are those that the process itself knows: its own, and the one at which it reaches the
	// API server.
	always []netip.Addr
	// services has the Service of the API server, and endpoints its EndpointSlices, which watch keeps there.
	services  client.Reader
	endpoints toolscache.Store
	watch     *toolscache.Reflector
}

// +kubebuilder:rbac:groups=discovery.k8s.io,resources=endpointslices,verbs=list;watch

func newReservedAddresses(mgr ctrl.Manager) (*reservedAddresses, error) {
	discovery, err := discoveryclient.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("make a client for the API server's endpoints: %w", err)
	}
	ofAPI := func(o *metav1.ListOptions) {
		o.LabelSelector = labels.Set{discoveryv1.LabelServiceName: apiService.Name}.String()
	}
	r := &reservedAddresses{services: mgr.GetClient(), endpoints: toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)}
	r.watch = toolscache.NewReflector(
		toolscache.NewFilteredListWatchFromClient(discovery.RESTClient(), "endpointslices", apiService.Namespace, ofAPI),
		&discoveryv1.EndpointSlice{}, r.endpoints, 0)
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
	return r, nil
}

// Start watches the API server's endpoints until ctx ends. An operator that may not read them knows one of its
// addresses all the same, and one that may list them alone lists them now and then.
func (r *reservedAddresses) Start(ctx context.Context) error {
	for said := false; ; {
		err := r.watch.ListAndWatchWithContext(ctx)
		if err != nil && ctx.Err() == nil && !said {
			said = true
			ctrl.Log.WithName("outbound").Info("The API server's endpoints can't be watched: those of its addresses that weren't listed may be asked for users", "cause", err.Error())
		}
		again := watchAgain
		if apierrors.IsForbidden(err) {
			again = readAgain
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(again):
		}
	}
}

// NeedLeaderElection is as for who asks.
func (*reservedAddresses) NeedLeaderElection() bool { return true }

// list are the reserved addresses, as far as they are known.
func (r *reservedAddresses) list() []netip.Addr {
	list := slices.Clone(r.always)
	svc := &corev1.Service{}
	// It is only read. The cache of an operator that is limited to some namespaces doesn't have it.
	if err := r.services.Get(context.Background(), apiService, svc, client.UnsafeDisableDeepCopy); err == nil {
		for _, ip := range svc.Spec.ClusterIPs {
			list = addAddress(list, ip)
		}
	}
	for _, of := range r.endpoints.List() {
		for _, e := range of.(*discoveryv1.EndpointSlice).Endpoints {
			for _, address := range e.Addresses {
				list = addAddress(list, address)
			}
		}
	}
	return list
}

func addAddress(list []netip.Addr, text string) []netip.Addr {
	if addr, err := netip.ParseAddr(text); err == nil {
		return append(list, addr)
	}
	return list
}
