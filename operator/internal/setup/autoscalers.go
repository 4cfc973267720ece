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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/operator/internal/front"
	"dormouse.dev/dormouse/operator/internal/gameautoscaler"
	"dormouse.dev/dormouse/operator/internal/metrics"
	"dormouse.dev/dormouse/operator/internal/options"
	"dormouse.dev/dormouse/operator/internal/scalewebhook"
	"dormouse.dev/dormouse/operator/internal/target"
)

// setupAutoscalers adds the GameAutoscaler controller, and the client that asks webhooks for it.
func setupAutoscalers(ctx context.Context, mgr ctrl.Manager, o options.Options, scaler *target.Scaler, players gameautoscaler.Players,
	usualBoot func(kind, namespace, name string) time.Duration, reporter *errortracking.Reporter,
) error {
	if err := gameautoscaler.SetupIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	reserved := newReservedAddresses(mgr)
	if err := mgr.Add(reserved); err != nil {
		return fmt.Errorf("add the reserved addresses: %w", err)
	}
	answered := make(chan event.TypedGenericEvent[*v1alpha1.GameAutoscaler], 1024)
	webhooks := scalewebhook.New(scalewebhook.Options{
		Services: func(ctx context.Context, namespace, name string) (*corev1.Service, error) {
			svc := &corev1.Service{}
			err := mgr.GetClient().Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, svc)
			if client.IgnoreNotFound(err) != nil || err == nil {
				return svc, err
			}
			return nil, nil
		},
		MayUse:    front.MayShare,
		Addresses: scalewebhook.Addresses{URLs: o.ScaleWebhookNetworks, Reserved: reserved.list},
		Done: func(s scalewebhook.Subject) {
			e := event.TypedGenericEvent[*v1alpha1.GameAutoscaler]{
				Object: &v1alpha1.GameAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}},
			}
			select {
			case answered <- e:
			default: // the controller ends, or has a thousand to look at: it looks again after the interval
			}
		},
	})
	if err := mgr.Add(webhooks); err != nil {
		return fmt.Errorf("add the client of webhooks: %w", err)
	}
	r := &gameautoscaler.Reconciler{
		Client:    mgr.GetClient(),
		Scaler:    scaler,
		Players:   players,
		Webhooks:  webhooks,
		UsualBoot: usualBoot,
		Events:    lateRecorder{mgr.GetEventRecorder("dormouse-operator")},
		Metrics:   metrics.NewAutoscalers(ctrlmetrics.Registry),
		Reporter:  reporter,
	}
	return r.Setup(mgr, answered)
}

// reservedEvery is how often the API server's addresses are looked up.
const reservedEvery = 5 * time.Minute

// reservedAddresses are those that no webhook may have: the API server's and the operator's own.
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
		ctrl.Log.WithName("webhooks").Error(err, "find the operator's own addresses")
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
			ctrl.Log.WithName("webhooks").Info("the API server's endpoints can't be read; its other addresses are never asked as webhooks", "cause", err.Error())
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
