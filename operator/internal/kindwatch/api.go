package kindwatch

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// findTime bounds the question what the API server has of a kind.
const findTime = 10 * time.Second

// api watches kinds of an API server. Each has a cache of its own, so that it can end alone.
type api struct {
	config    *rest.Config
	http      *http.Client
	scheme    *runtime.Scheme
	discovery rest.Interface
	options   Options
}

func newAPI(mgr ctrl.Manager, options Options) (*api, error) {
	d, err := discovery.NewDiscoveryClientForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("set up discovery: %w", err)
	}
	return &api{config: mgr.GetConfig(), http: mgr.GetHTTPClient(), scheme: mgr.GetScheme(), discovery: d.RESTClient(), options: options}, nil
}

// watch is the watchFunc of the API server.
func (a *api) watch(ctx context.Context, kind schema.GroupVersionKind, on events) error {
	resource, err := a.find(ctx, kind)
	if err != nil {
		return err
	}
	if err := a.try(ctx, resource); err != nil {
		return err
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{kind.GroupVersion()})
	mapper.AddSpecific(kind, resource, resource, meta.RESTScopeNamespace)
	watching, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	c, err := cache.New(a.config, cache.Options{
		HTTPClient:        a.http,
		Scheme:            a.scheme,
		Mapper:            mapper,
		DefaultNamespaces: a.options.Namespaces,
		DefaultTransform:  a.options.Transform,
		DefaultWatchErrorHandler: func(ctx context.Context, r *toolscache.Reflector, err error) {
			if final(err) {
				giveUp(err)
				return
			}
			toolscache.DefaultWatchErrorHandler(ctx, r, err)
		},
	})
	if err != nil {
		return fmt.Errorf("set up the cache of %s: %w", kind, err)
	}
	informer, err := c.GetInformer(watching, a.object(kind), cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch %s: %w", kind, err)
	}
	handler, err := informer.AddEventHandler(a.handler(on))
	if err != nil {
		return fmt.Errorf("watch %s: %w", kind, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Start(watching) }()
	select {
	case <-handler.HasSyncedChecker().Done():
		on.synced(c)
	case <-watching.Done():
	}
	if err := <-ended; err != nil {
		return fmt.Errorf("watch %s: %w", kind, err)
	}
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("watch %s: %w", kind, context.Cause(watching))
}

// find finds the kind's resource. The manager's mapper would go on to know kinds that are gone.
func (a *api) find(ctx context.Context, kind schema.GroupVersionKind) (found schema.GroupVersionResource, err error) {
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	path := []string{"/apis", kind.Group, kind.Version}
	if kind.Group == "" {
		path = []string{"/api", kind.Version}
	}
	var list metav1.APIResourceList
	err = a.discovery.Get().AbsPath(path...).Do(ctx).Into(&list)
	if err != nil && !apierrors.IsNotFound(err) {
		return found, fmt.Errorf("discover %s: %w", kind, err)
	}
	at := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool {
		return r.Kind == kind.Kind && !strings.Contains(r.Name, "/")
	})
	if at < 0 {
		return found, &meta.NoKindMatchError{GroupKind: kind.GroupKind(), SearchedVersions: []string{kind.Version}}
	}
	resource := list.APIResources[at]
	scalable := slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource.Name+"/scale" })
	switch {
	case !resource.Namespaced:
		return found, fmt.Errorf("%w: %s has no namespaces", ErrUnsuited, kind)
	case a.options.Scalable && !scalable:
		return found, fmt.Errorf("%w: %s has no scale", ErrUnsuited, kind)
	case !slices.Contains(resource.Verbs, "list") || !slices.Contains(resource.Verbs, "watch"):
		return found, fmt.Errorf("%w: %s has no list and watch", ErrUnsuited, kind)
	}
	return kind.GroupVersion().WithResource(resource.Name), nil
}

// try lists one object in each namespace. A cache of several namespaces whose list is refused would
// wait for it beyond its own end.
func (a *api) try(ctx context.Context, resource schema.GroupVersionResource) error {
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	c, err := metadata.NewForConfigAndClient(a.config, a.http)
	if err != nil {
		return fmt.Errorf("make a client of metadata: %w", err)
	}
	namespaces := slices.Sorted(maps.Keys(a.options.Namespaces))
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		if _, err := c.Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: 1}); err != nil {
			return fmt.Errorf("list %s: %w", resource.GroupResource(), err)
		}
	}
	return nil
}

// object is one of the kind, as it is watched.
func (a *api) object(kind schema.GroupVersionKind) client.Object {
	var o client.Object = &metav1.PartialObjectMetadata{}
	if a.options.Whole {
		o = &unstructured.Unstructured{}
	}
	o.GetObjectKind().SetGroupVersionKind(kind)
	return o
}

func (a *api) handler(on events) toolscache.ResourceEventHandler {
	tell := func(o any, listed bool) {
		if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if object, ok := o.(client.Object); ok {
			on.changed(object, listed)
		}
	}
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: tell,
		UpdateFunc: func(before, after any) {
			was, ok1 := before.(client.Object)
			is, ok2 := after.(client.Object)
			if a.options.Differ == nil || !ok1 || !ok2 || a.options.Differ(was, is) {
				tell(after, false)
			}
		},
		DeleteFunc: func(o any) { tell(o, false) },
	}
}
