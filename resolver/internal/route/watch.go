package route

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/namespaces"
)

// Watcher fills a Table and an Own from the cluster, with one watch for each of
// ElasticServices, their slices, and Servers.
type Watcher struct {
	table  *Table
	cache  cache.Cache
	synced []toolscache.InformerSynced
}

// NewWatcher makes a watcher, limited to some namespaces; it watches once Start is called.
func NewWatcher(ctx context.Context, config *rest.Config, limit namespaces.List, table *Table, own *Own) (*Watcher, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), discoveryv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("registering kinds: %w", err)
	}
	private, err := labels.NewRequirement(wellknown.PrivateServiceLabel, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("selecting private slices: %w", err)
	}
	writers, err := labels.NewRequirement(discoveryv1.LabelManagedBy, selection.In, []string{wellknown.EndpointSliceController, wellknown.ManagedBy})
	if err != nil {
		return nil, fmt.Errorf("selecting slices by who wrote them: %w", err)
	}
	c, err := cache.New(config, cache.Options{
		Scheme:            scheme,
		DefaultNamespaces: limit.Cached(),
		DefaultTransform:  cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.ElasticService{}: {Transform: stripService},
			&v1alpha1.Server{}:         {Transform: stripServer},
			&discoveryv1.EndpointSlice{}: {
				Label:     labels.NewSelector().Add(*private, *writers),
				Transform: stripSlice,
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("making the watch cache: %w", err)
	}
	w := &Watcher{table: table, cache: c}
	if err := w.handle(ctx, &v1alpha1.ElasticService{}, handlers(
		table.SetService,
		func(es *v1alpha1.ElasticService) { table.DeleteService(es.Namespace, es.Name) },
	)); err != nil {
		return nil, err
	}
	if err := w.handle(ctx, &v1alpha1.Server{}, handlers(table.SetServer, table.DeleteServer)); err != nil {
		return nil, err
	}
	if err := w.handle(ctx, &discoveryv1.EndpointSlice{}, handlers(
		func(slice *discoveryv1.EndpointSlice) { table.SetSlice(slice); own.SetSlice(slice) },
		func(slice *discoveryv1.EndpointSlice) { table.DeleteSlice(slice); own.DeleteSlice(slice) },
	)); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *Watcher) handle(ctx context.Context, object client.Object, handler toolscache.ResourceEventHandler) error {
	informer, err := w.cache.GetInformer(ctx, object, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watching %T: %w", object, err)
	}
	registration, err := informer.AddEventHandler(handler)
	if err != nil {
		return fmt.Errorf("handling changes of %T: %w", object, err)
	}
	w.synced = append(w.synced, registration.HasSynced)
	return nil
}

// Start watches until the context ends.
func (w *Watcher) Start(ctx context.Context) error {
	if err := w.cache.Start(ctx); err != nil {
		return fmt.Errorf("watching the cluster: %w", err)
	}
	return nil
}

// Synced reports whether the table has seen everything that was in the cluster when the watch
// began, and its sink was given all of it.
func (w *Watcher) Synced() bool {
	for _, synced := range w.synced {
		if !synced() {
			return false
		}
	}
	return true
}

// handlers turns typed functions into an informer's handler.
func handlers[T client.Object](set, remove func(T)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if typed, ok := object.(T); ok {
				set(typed)
			}
		},
		UpdateFunc: func(_, object any) {
			if typed, ok := object.(T); ok {
				set(typed)
			}
		},
		DeleteFunc: func(object any) {
			if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = gone.Obj
			}
			if typed, ok := object.(T); ok {
				remove(typed)
			}
		},
	}
}

// stripService drops what routes are not made from, which is most of an object.
func stripService(object any) (any, error) {
	if es, ok := object.(*v1alpha1.ElasticService); ok {
		until, kept := es.Annotations[wellknown.KeepAsleepUntilAnnotation]
		stripMeta(&es.ObjectMeta)
		if kept {
			es.Annotations = map[string]string{wellknown.KeepAsleepUntilAnnotation: until}
		}
		es.Spec.Idle = nil
		packPlayers(es)
		// Only one condition is read: whether clients are seen with their own addresses.
		es.Status.Conditions = slices.DeleteFunc(es.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type != conditions.SourceIPPreserved
		})
	}
	return object, nil
}

// stripServer keeps whether a Server drains, its players, whether it takes more, and its owners.
func stripServer(object any) (any, error) {
	s, ok := object.(*v1alpha1.Server)
	if !ok {
		return object, nil
	}
	slim := &v1alpha1.Server{}
	slim.Namespace, slim.Name, slim.UID, slim.ResourceVersion = s.Namespace, s.Name, s.UID, s.ResourceVersion
	slim.DeletionTimestamp = s.DeletionTimestamp
	slim.Spec.Drain, slim.Spec.Running, slim.Spec.Replicas = s.Spec.Drain, s.Spec.Running, s.Spec.Replicas
	if waits(&s.Spec.Template.Spec) {
		// Nothing more is read of the template.
		slim.Spec.Template.Spec.Containers = []corev1.Container{{ReadinessProbe: &corev1.Probe{}}}
	}
	if game := s.Status.Game; game != nil {
		slim.Status.Game = &v1alpha1.GameStatus{PodUID: game.PodUID, State: game.State, Since: game.Since, Reported: game.Reported}
	}
	if p := s.Status.Players; p != nil {
		slim.Status.Players = &v1alpha1.PlayersStatus{Current: p.Current, Capacity: p.Capacity}
	}
	slim.Labels = map[string]string{}
	for _, l := range []string{wellknown.FleetLabel, wellknown.GameTypeLabel} {
		if of := s.Labels[l]; of != "" {
			slim.Labels[l] = of
		}
	}
	return slim, nil
}

func stripSlice(object any) (any, error) {
	if slice, ok := object.(*discoveryv1.EndpointSlice); ok {
		stripMeta(&slice.ObjectMeta)
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			e.Hints, e.NodeName, e.Zone = nil, nil, nil
			if e.TargetRef != nil {
				e.TargetRef = &corev1.ObjectReference{Name: e.TargetRef.Name, UID: e.TargetRef.UID}
			}
		}
	}
	return object, nil
}

func stripMeta(meta *metav1.ObjectMeta) {
	meta.ManagedFields = nil
	meta.Annotations = nil
	meta.OwnerReferences = nil
	meta.Finalizers = nil
}
