// Package index has the cache's indexes over ElasticServices and their EndpointSlices, and the
// look-ups by them. It only reads the cache, and decides nothing but which of two
// ElasticServices is the older.
package index

import (
	"context"
	"fmt"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// Keys of the cache's indexes over ElasticServices and their EndpointSlices.
const (
	// Service finds ElasticServices by the name of their Service, where that isn't their own: ask
	// OfService.
	Service = "spec.service"
	// PrivateService finds them by the name of the private Service that they need, where that doesn't
	// tell their Service's: ask OfPrivateService.
	PrivateService = "private-service"
	// Target finds them by kind/name of their target, where the name isn't their own: ask OfTarget.
	Target = "spec.scaleTargetRef"
	// Front finds them by the Service that they share, and by that and one of their hosts, as
	// FrontKeys forms the keys.
	Front = "spec.front"
	// Autoscaler finds them by kind/name of what spec.autoscaler names.
	Autoscaler = "spec.autoscaler"
	// WakeWith finds them by the names in spec.wakeWith.
	WakeWith = "spec.wakeWith"
	// Players finds them by the ConfigMaps with their lists of players.
	Players = "spec.wake.players"
	// SliceService finds slices by the user's Service that they belong to.
	SliceService = "dormouse.private-service"
	// SlicePort finds Dormouse's slices by a port in them, and its neighbors: ask PortInSlice.
	SlicePort = "dormouse.port"
)

// Setup adds the indexes that the controllers and the wake endpoint use.
func Setup(ctx context.Context, indexer client.FieldIndexer) error {
	for _, i := range []struct {
		object client.Object
		key    string
		fn     client.IndexerFunc
	}{
		{&v1alpha1.ElasticService{}, Service, serviceKeys},
		{&v1alpha1.ElasticService{}, PrivateService, privateServiceKeys},
		{&v1alpha1.ElasticService{}, Target, targetKeys},
		{&v1alpha1.ElasticService{}, Front, FrontKeys},
		{&v1alpha1.ElasticService{}, Players, playerListKeys},
		{&v1alpha1.ElasticService{}, WakeWith, func(o client.Object) []string {
			return o.(*v1alpha1.ElasticService).Spec.WakeWith
		}},
		{&v1alpha1.ElasticService{}, Autoscaler, func(o client.Object) []string {
			if a := o.(*v1alpha1.ElasticService).Spec.Autoscaler; a != nil {
				return []string{string(a.Kind) + "/" + a.Name}
			}
			return nil
		}},
		{&v1alpha1.Allocation{}, AllocationServer, AllocationServerKeys},
		{&v1alpha1.GameAutoscaler{}, AutoscalerTarget, autoscalerTarget},
		{&discoveryv1.EndpointSlice{}, SliceService, func(o client.Object) []string {
			return []string{o.GetLabels()[wellknown.PrivateServiceLabel]}
		}},
		{&discoveryv1.EndpointSlice{}, SlicePort, slicePortKeys},
	} {
		if err := indexer.IndexField(ctx, i.object, i.key, i.fn); err != nil {
			return fmt.Errorf("add the index %s: %w", i.key, err)
		}
	}
	return nil
}

// FrontOf is the Service that an ElasticService wants to share.
func FrontOf(es *v1alpha1.ElasticService) (types.NamespacedName, bool) {
	f := es.Spec.Front
	if f == nil {
		return types.NamespacedName{}, false
	}
	key := types.NamespacedName{Namespace: f.Namespace, Name: f.Service}
	if key.Namespace == "" {
		key.Namespace = es.Namespace
	}
	return key, true
}

// FrontHost is a front's host's key in the index Front.
func FrontHost(front types.NamespacedName, host v1alpha1.FrontHost) string {
	return front.String() + "/" + string(host)
}

// FrontKeys are an ElasticService's keys in the index Front: that of its front, and then those
// of its hosts.
func FrontKeys(o client.Object) []string {
	es, ok := o.(*v1alpha1.ElasticService)
	if !ok || es.Spec.Front == nil {
		return nil
	}
	front, _ := FrontOf(es)
	keys := []string{front.String()}
	for _, host := range es.Spec.Front.Hosts {
		keys = append(keys, FrontHost(front, host))
	}
	return keys
}

// PlayerLists are the lists of players in an ElasticService's spec.
func PlayerLists(es *v1alpha1.ElasticService) (lists []v1alpha1.PlayerList) {
	if es.Spec.Wake == nil || es.Spec.Wake.Players == nil {
		return nil
	}
	for _, l := range []*v1alpha1.PlayerList{es.Spec.Wake.Players.AllowFrom, es.Spec.Wake.Players.DenyFrom} {
		if l != nil {
			lists = append(lists, *l)
		}
	}
	return lists
}

func playerListKeys(o client.Object) (names []string) {
	if es, ok := o.(*v1alpha1.ElasticService); ok {
		for _, l := range PlayerLists(es) {
			names = append(names, l.ConfigMap)
		}
	}
	return slices.Compact(names)
}
