package affected

import (
	"slices"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/elasticservice/idleness"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/front"
	"dormouse.dev/dormouse/operator/internal/udpports"
)

// KeptAwakeChanged lets through GameAutoscalers that begin or cease to keep their target awake.
func KeptAwakeChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*v1alpha1.GameAutoscaler)
			after, ok2 := e.ObjectNew.(*v1alpha1.GameAutoscaler)
			return ok1 && ok2 && (!before.Status.KeepAwakeUntil.Equal(after.Status.KeepAwakeUntil) || before.Spec.TargetRef != after.Spec.TargetRef)
		},
	}
}

// HostPortsChanged lets through Servers that get UDP host ports, or lose them.
func HostPortsChanged() predicate.Predicate {
	has := func(o client.Object) bool {
		s, ok := o.(*v1alpha1.Server)
		return ok && len(udpports.HostPorts(s)) > 0
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return has(e.Object) },
		DeleteFunc: func(e event.DeleteEvent) bool { return has(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*v1alpha1.Server)
			after, ok2 := e.ObjectNew.(*v1alpha1.Server)
			return ok1 && ok2 && !slices.Equal(udpports.HostPorts(before), udpports.HostPorts(after))
		},
	}
}

// ServerChanged lets through what makes a Server busy or not, or drain.
func ServerChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*v1alpha1.Server)
			after, ok2 := e.ObjectNew.(*v1alpha1.Server)
			return ok1 && ok2 && (idleness.Busy(before) != idleness.Busy(after) || idleness.Drains(before) != idleness.Drains(after))
		},
	}
}

// HostsMoved lets through what may give a host to another ElasticService. Those that are there
// when the operator starts all have a pass of their own.
func HostsMoved() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*v1alpha1.ElasticService)
			after, ok2 := e.ObjectNew.(*v1alpha1.ElasticService)
			return ok1 && ok2 && before.Generation != after.Generation && !front.Same(before.Spec.Front, after.Spec.Front)
		},
	}
}

// NoneLeft reports whether a slice has no server left that takes clients: then the resolver
// must stand in at once. A slice that has just been made has none yet.
func NoneLeft(o client.Object) bool {
	slice, ok := o.(*discoveryv1.EndpointSlice)
	if !ok {
		return false
	}
	servers, up := endpoints.ServersOf([]discoveryv1.EndpointSlice{*slice}, endpoints.Pods{})
	drains := len(servers) == 0
	for _, s := range servers {
		drains = drains || s.Terminating
	}
	return drains && up == 0
}

// BoundsChanged lets through HorizontalPodAutoscalers that come, go, or are given other bounds,
// another target or another owner. Their status changes all the time.
func BoundsChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok1 := e.ObjectOld.(*autoscalingv2.HorizontalPodAutoscaler)
		after, ok2 := e.ObjectNew.(*autoscalingv2.HorizontalPodAutoscaler)
		return !ok1 || !ok2 || !equality.Semantic.DeepEqual(before.Spec, after.Spec) ||
			!equality.Semantic.DeepEqual(before.OwnerReferences, after.OwnerReferences)
	}}
}
