package kindwatch

import (
	"cmp"
	"context"
	"errors"
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
	namespaces, refused, err := a.allowed(ctx, resource)
	if err != nil {
		return err
	}
	if len(refused) > 0 {
		a.options.log.Info("the operator may not list and watch the kind in some namespaces: a change shows late there, and each pass reads the API server",
			"kind", kind.String(), "namespaces", refused)
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{kind.GroupVersion()})
	mapper.AddSpecific(kind, resource, resource, meta.RESTScopeNamespace)
	watching, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	config, scheme, object := a.decoding(kind)
	c, err := cache.New(config, cache.Options{
		HTTPClient:        a.http,
		Scheme:            scheme,
		Mapper:            mapper,
		DefaultNamespaces: namespaces,
		DefaultTransform:  a.options.Transform,
		DefaultWatchErrorHandler: func(ctx context.Context, r *toolscache.Reflector, err error) {
			switch {
			case final(err) && len(namespaces) > 1:
				giveUp(errAnew) // without the namespace that this is about
				return
			case final(err):
				giveUp(err)
				return
			}
			toolscache.DefaultWatchErrorHandler(ctx, r, err)
		},
	})
	if err != nil {
		return fmt.Errorf("set up the cache of %s: %w", kind, err)
	}
	informer, err := c.GetInformer(watching, object, cache.BlockUntilSynced(false))
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
		on.synced(inNamespaces{c, namespaces})
	case <-watching.Done():
	}
	if len(refused) > 0 {
		a.awaitGrant(watching, resource, refused, giveUp)
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

// errAnew means that a watch ends because it is to begin anew in other namespaces.
var errAnew = errors.New("the namespaces that may be watched have changed")

// errUnwatched means that an object is in a namespace that isn't watched.
var errUnwatched = errors.New("the namespace isn't watched")

// inNamespaces reads objects of the namespaces that are watched; none: of all.
type inNamespaces struct {
	client.Reader
	namespaces map[string]cache.Config
}

// Get implements client.Reader.
func (w inNamespaces) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, ok := w.namespaces[key.Namespace]; !ok && len(w.namespaces) > 0 {
		return errUnwatched
	}
	return w.Reader.Get(ctx, key, o, opts...) //nolint:wrapcheck // the caller says what it reads
}

// allowed finds the namespaces in which a resource may be listed and watched, none where all may be, and
// those in which it may not. It is an error that there is none.
func (a *api) allowed(ctx context.Context, resource schema.GroupVersionResource) (namespaces map[string]cache.Config, refused []string, err error) {
	if len(a.options.Namespaces) == 0 {
		return nil, nil, a.try(ctx, resource, metav1.NamespaceAll)
	}
	namespaces = map[string]cache.Config{}
	var first error
	for _, namespace := range slices.Sorted(maps.Keys(a.options.Namespaces)) {
		err := a.try(ctx, resource, namespace)
		switch {
		case err == nil:
			namespaces[namespace] = a.options.Namespaces[namespace]
		case !final(err):
			return nil, nil, err
		default:
			refused = append(refused, namespace)
			first = cmp.Or(first, err)
		}
	}
	if len(namespaces) == 0 {
		return nil, nil, first
	}
	return namespaces, refused, nil
}

// awaitGrant ends a watch once one of the namespaces that were refused may be watched. It returns when
// the watch ends.
func (a *api) awaitGrant(ctx context.Context, resource schema.GroupVersionResource, refused []string, giveUp func(error)) {
	tick := time.NewTicker(lastRetry)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if slices.ContainsFunc(refused, func(namespace string) bool { return a.try(ctx, resource, namespace) == nil }) {
			giveUp(errAnew)
			return
		}
	}
}

// try lists one object of a namespace, and begins a watch. A cache whose list is refused would wait for
// it beyond its own end, and one whose watch is refused would list all objects each time it is tried.
func (a *api) try(ctx context.Context, resource schema.GroupVersionResource, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, findTime)
	defer cancel()
	c, err := metadata.NewForConfigAndClient(a.config, a.http)
	if err != nil {
		return fmt.Errorf("make a client of metadata: %w", err)
	}
	objects := c.Resource(resource).Namespace(namespace)
	list, err := objects.List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return fmt.Errorf("list %s: %w", resource.GroupResource(), err)
	}
	w, err := objects.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion, TimeoutSeconds: new(int64(1))})
	if err != nil {
		return fmt.Errorf("watch %s: %w", resource.GroupResource(), err)
	}
	w.Stop()
	return nil
}

// decoding is what objects of a kind are decoded into, the scheme for that, and how the API server is asked for
// them.
func (a *api) decoding(kind schema.GroupVersionKind) (*rest.Config, *runtime.Scheme, client.Object) {
	if a.options.Typed != nil {
		if scheme, o := a.options.Typed(kind); scheme != nil {
			config := rest.CopyConfig(a.config)
			config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
			return config, scheme, o
		}
	}
	var o client.Object = &metav1.PartialObjectMetadata{}
	if a.options.Whole {
		o = &unstructured.Unstructured{}
	}
	o.GetObjectKind().SetGroupVersionKind(kind)
	return a.config, a.scheme, o
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
