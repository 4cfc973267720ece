package setup

import (
	"fmt"
	"maps"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/cachestore"
	"dormouse.dev/dormouse/operator/internal/copyjob"
	"dormouse.dev/dormouse/operator/internal/gameautoscaler"
	"dormouse.dev/dormouse/operator/internal/gameserver"
	"dormouse.dev/dormouse/operator/internal/options"
	"dormouse.dev/dormouse/operator/internal/ownsecret"
	"dormouse.dev/dormouse/operator/internal/playerlist"
	"dormouse.dev/dormouse/operator/internal/serverfiles"
	"dormouse.dev/dormouse/operator/internal/servingcert"
	"dormouse.dev/dormouse/operator/internal/slim"
)

// newManager makes the manager, with caches of what the operator reads, and of no more.
func newManager(config *rest.Config, o options.Options, stored *cachestore.Store[*v1alpha1.Server]) (ctrl.Manager, error) {
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	ours, err := labels.NewRequirement(wellknown.PrivateServiceLabel, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("select EndpointSlices: %w", err)
	}
	pods, err := cachedPods(o)
	if err != nil {
		return nil, err
	}
	byObject := map[client.Object]cache.ByObject{
		// Of all the cluster's slices only those of services that may sleep.
		&discoveryv1.EndpointSlice{}: {Label: labels.NewSelector().Add(*ours), Transform: slim.EndpointSlice},
		&v1alpha1.Server{}:           {Transform: slim.Server},
		&v1alpha1.ElasticService{}:   {Transform: slim.ElasticService},
		&corev1.Pod{}:                pods,
		&corev1.Service{}:            {Transform: slimService},
		// Of all ConfigMaps only lists of players.
		&corev1.ConfigMap{}: {
			Label:     labels.SelectorFromSet(labels.Set{wellknown.PlayerListLabel: "true"}),
			Transform: playerlist.Slim,
		},
	}
	served, err := serverfiles.CachedObjects()
	if err != nil {
		return nil, err
	}
	maps.Copy(byObject, served)
	maps.Copy(byObject, gameserver.CachedObjects(o.Namespace))
	maps.Copy(byObject, gameautoscaler.CachedObjects())
	maps.Copy(byObject, copyjob.CachedObjects())
	byObject[&corev1.Secret{}] = ownsecret.Cached(o.Namespace)
	if o.WebhookListen != "" {
		byObject[&admissionv1.ValidatingWebhookConfiguration{}] = servingcert.CachedWebhook()
	}
	byObject[&v1alpha1.Fleet{}] = cache.ByObject{Transform: slimScaled}
	byObject[&v1alpha1.GameType{}] = cache.ByObject{Transform: slimScaled}
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		LeaderElection:                o.LeaderElect,
		LeaderElectionID:              LeaderElectionID,
		LeaderElectionNamespace:       o.Namespace,
		LeaderElectionReleaseOnCancel: true,
		Metrics:                       server.Options{BindAddress: "0"},
		// controller-runtime's own queue may deadlock while it shuts down, up to and including
		// v0.24.1 (its issue 3538): the next leader would wait for the lease to end.
		// Its time for the first objects is for all event handlers, which are told them in turn.
		Controller: ctrlconfig.Controller{UsePriorityQueue: new(false), CacheSyncTimeout: 10 * time.Minute},
		NewCache:   newCache,
		Cache: cache.Options{
			DefaultTransform:  cache.TransformStripManagedFields(),
			DefaultNamespaces: o.Namespaces.Cached(),
			ByObject:          byObject,
			NewInformer:       stored.NewInformer,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("set up the manager: %w", err)
	}
	return mgr, nil
}

// slimService drops fields that the operator doesn't read from objects of which a cluster may have
// many. The annotations of a GameType's own Service and Fleets are kept, of a Service that leads to
// a Server's files, and some annotations of a front and of a GameType.
func slimService(o any) (any, error) {
	if object, ok := o.(client.Object); ok {
		object.SetManagedFields(nil)
		has := object.GetLabels()
		_, kept := has[wellknown.GameTypeLabel]
		if _, files := has[wellknown.FilesLabel]; !kept && !files {
			var read map[string]string
			for name, value := range object.GetAnnotations() {
				if slices.Contains(wellknown.ServiceAnnotations, name) || slices.Contains(wellknown.GameTypeAnnotations, name) {
					if read == nil {
						read = map[string]string{}
					}
					read[name] = value
				}
			}
			object.SetAnnotations(read)
		}
	}
	if service, ok := o.(*corev1.Service); ok {
		slim.Service(service)
	}
	return o, nil
}

// maxAnnotations bounds what is kept for webhooks of an object's annotations, in bytes.
const maxAnnotations = 4 << 10

// slimScaled is slimService for what GameAutoscalers scale: webhooks are told its annotations, so short ones
// are kept, too.
func slimScaled(o any) (any, error) {
	object, ok := o.(client.Object)
	if !ok {
		return o, nil
	}
	all := object.GetAnnotations()
	if _, err := slimService(o); err != nil {
		return nil, err
	}
	kept, left := maps.Clone(object.GetAnnotations()), maxAnnotations
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if left -= len(name) + len(all[name]); name == corev1.LastAppliedConfigAnnotation || left < 0 {
			left += len(name) + len(all[name])
			continue
		}
		if kept == nil {
			kept = map[string]string{}
		}
		kept[name] = all[name]
	}
	object.SetAnnotations(kept)
	return o, nil
}
