package elasticservice_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/api/fixture"
)

// What an endpoint is to kube-proxy.
const (
	takesClients = "takes clients"
	keepsClients = "keeps clients"
)

func stateOf(e discoveryv1.Endpoint) string {
	c := e.Conditions
	switch [3]bool{ptr.Deref(c.Ready, false), ptr.Deref(c.Serving, false), ptr.Deref(c.Terminating, false)} {
	case [3]bool{true, true, false}:
		return takesClients
	case [3]bool{false, true, true}:
		return keepsClients
	default:
		return fmt.Sprintf("ready=%v serving=%v terminating=%v", ptr.Deref(c.Ready, false), ptr.Deref(c.Serving, false), ptr.Deref(c.Terminating, false))
	}
}

// ourSlices are those that Dormouse wrote for a Service.
func (w *world) ourSlices(ctx context.Context, service string) ([]discoveryv1.EndpointSlice, error) {
	var list discoveryv1.EndpointSliceList
	if err := w.c.List(ctx, &list, client.InNamespace(w.ns), client.MatchingLabels{
		discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: wellknown.ManagedBy,
	}); err != nil {
		return nil, fmt.Errorf("list EndpointSlices: %w", err)
	}
	return list.Items, nil
}

// endpoints are the states of a Service's endpoints of ours by their address.
func endpoints(list []discoveryv1.EndpointSlice) map[string]string {
	states := map[string]string{}
	for _, s := range list {
		for _, e := range s.Endpoints {
			states[e.Addresses[0]] = stateOf(e)
		}
	}
	return states
}

// wantEndpoints waits until a Service's endpoints of ours are exactly these.
func (w *world) wantEndpoints(service string, within time.Duration, want map[string]string) {
	w.t.Helper()
	fixture.Eventually(w.t, within, "endpoints of Service "+service, func(ctx context.Context) error {
		list, err := w.ourSlices(ctx, service)
		if err != nil {
			return err
		}
		if diff := cmp.Diff(want, endpoints(list)); diff != "" {
			return fmt.Errorf("endpoints (-want +got):\n%s", diff)
		}
		return nil
	})
}

// resolversAre is every resolver's IPv4 address with one state.
func resolversAre(state string) map[string]string {
	want := map[string]string{}
	for _, r := range cluster.resolvers.members {
		want[r.address] = state
	}
	return want
}

// and adds to a set of endpoints.
func and(sets ...map[string]string) map[string]string {
	sum := map[string]string{}
	for _, s := range sets {
		maps.Copy(sum, s)
	}
	return sum
}

// toEndpoints passes a write of a resolvers' IPv4 slice with these endpoints.
func toEndpoints(service string, want map[string]string) func(change) bool {
	return func(c change) bool {
		s, ok := c.object.(*discoveryv1.EndpointSlice)
		return isOurs(c, service) && ok && c.kind != watch.Deleted && s.AddressType == discoveryv1.AddressTypeIPv4 && maps.Equal(endpoints([]discoveryv1.EndpointSlice{*s}), want)
	}
}

// gameServer is a pod of a target, as the private Service's slices show it.
type gameServer struct {
	address     string
	serving     bool
	terminating bool
	// pod is whose address it is; nil: one that nobody ever made.
	pod *corev1.Pod
}

var lastServer atomic.Int32

// newServer has an address that no other has, and is up.
func newServer() gameServer {
	n := lastServer.Add(1)
	return gameServer{address: fmt.Sprintf("10.244.%d.%d", 1+n/250, 1+n%250), serving: true}
}

// servers writes the private Service's slice as Kubernetes does: ready is true
// for each pod, because the Service publishes those that aren't.
func (w *world) servers(service string, pods ...gameServer) {
	w.t.Helper()
	var private corev1.ServiceList
	fixture.Eventually(w.t, promptly, "private Service of "+service, func(ctx context.Context) error {
		if err := w.c.List(ctx, &private, client.InNamespace(w.ns), client.MatchingLabels{wellknown.PrivateServiceLabel: service}); err != nil {
			return fmt.Errorf("list Services: %w", err)
		}
		if len(private.Items) != 1 {
			return fmt.Errorf("%d private Services, want 1", len(private.Items))
		}
		return nil
	})
	name := private.Items[0].Name
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			// Another private Service of the name gets slices of other names.
			Name: name + "-" + string(private.Items[0].UID[:5]), Namespace: w.ns,
			Labels: map[string]string{
				discoveryv1.LabelServiceName:  name,
				discoveryv1.LabelManagedBy:    "endpointslice-controller.k8s.io",
				wellknown.PrivateServiceLabel: service,
				corev1.IsHeadlessService:      "",
			},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for _, p := range private.Items[0].Spec.Ports {
		slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: new(p.Name), Port: new(p.Port), Protocol: new(p.Protocol)})
	}
	for _, p := range pods {
		ref := &corev1.ObjectReference{
			Kind: "Pod", Namespace: w.ns, Name: "game-" + p.address[strings.LastIndexByte(p.address, '.')+1:], UID: types.UID("uid-" + p.address),
		}
		if p.pod != nil {
			ref.Name, ref.UID = p.pod.Name, p.pod.UID
		}
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{p.address},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(p.serving), Terminating: new(p.terminating)},
			NodeName:   new("node-1"),
			TargetRef:  ref,
		})
	}
	slices.SortFunc(slice.Endpoints, func(a, b discoveryv1.Endpoint) int { return strings.Compare(a.Addresses[0], b.Addresses[0]) })
	err := w.c.Create(w.t.Context(), slice)
	if apierrors.IsAlreadyExists(err) {
		err = w.c.Update(w.t.Context(), slice)
	}
	if err != nil {
		w.t.Fatalf("write the private EndpointSlice of %s: %v", service, err)
	}
}
