package serverfiles

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/errortracking/reconcilers"
	"dormouse.dev/dormouse/operator/internal/kit"
)

// maxConcurrent bounds how many Servers, and how many GameTypes, are reconciled at once.
const maxConcurrent = 4

// indexOwner finds the objects that serve files by the UID of the Server or GameType that owns them.
const indexOwner = "dormouse.files.owner"

// CachedObjects are the objects that only this controller reads, with how they are cached.
func CachedObjects() (map[client.Object]cache.ByObject, error) {
	ours, err := labels.NewRequirement(wellknown.FilesLabel, selection.Exists, nil)
	if err != nil {
		return nil, fmt.Errorf("select the Deployments that serve files: %w", err)
	}
	return map[client.Object]cache.ByObject{&appsv1.Deployment{}: {Label: labels.NewSelector().Add(*ours)}}, nil
}

// SetupIndexes adds the indexes that the controller uses.
func SetupIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, o := range []client.Object{&appsv1.Deployment{}, &corev1.Service{}, &v1alpha1.ElasticService{}} {
		err := indexer.IndexField(ctx, o, indexOwner, func(o client.Object) []string {
			by := metav1.GetControllerOfNoCopy(o)
			if by == nil || o.GetLabels()[wellknown.FilesLabel] == "" {
				return nil
			}
			return []string{string(by.UID)}
		})
		if err != nil {
			return fmt.Errorf("add the index %s: %w", indexOwner, err)
		}
	}
	return nil
}

// Setup registers the two controllers.
func (r *Reconciler) Setup(mgr ctrl.Manager) error {
	r.Init()
	for _, c := range []struct {
		name, kind string
		object     client.Object
		reconcile  reconcile.Func
		server     handler.MapFunc
	}{
		{"server-files", "Server", &v1alpha1.Server{}, r.ReconcileServer, r.serverOfFiles},
		{"gametype-files", "GameType", &v1alpha1.GameType{}, r.ReconcileGameType, r.gameTypeOfFiles},
	} {
		find := owners(c.kind, c.server)
		err := ctrl.NewControllerManagedBy(mgr).
			Named(c.name).
			Watches(c.object, kit.OwnChanges(), builder.WithPredicates(asksForFiles())).
			Watches(&appsv1.Deployment{}, kit.ChildrenChanges(find)).
			Watches(&corev1.Service{}, kit.ChildrenChanges(find)).
			Watches(&v1alpha1.ElasticService{}, kit.ChildrenChanges(find)).
			Watches(&corev1.Pod{}, kit.ChildrenChanges(r.besideFiles(c.kind))).
			Watches(&corev1.PodTemplate{}, handler.EnqueueRequestsFromMapFunc(r.all(c.kind))).
			WithOptions(controller.Options{MaxConcurrentReconciles: maxConcurrent, RateLimiter: kit.Limiter()}).
			Complete(reconcilers.Wrap(r.Reporter, c.name, c.kind, c.reconcile))
		if err != nil {
			return fmt.Errorf("set up the controller %s: %w", c.name, err)
		}
	}
	return nil
}

// filesOf is what an object asks for.
func filesOf(o client.Object) *v1alpha1.FilesSpec {
	switch o := o.(type) {
	case *v1alpha1.Server:
		return o.Spec.Files
	case *v1alpha1.GameType:
		return o.Spec.Files
	}
	return nil
}

// asksForFiles lets through changes of what asks for files, or did until now. Of others nothing is
// to be done but for objects that are left, which are seen by themselves.
func asksForFiles() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return filesOf(e.Object) != nil },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() && (filesOf(e.ObjectOld) != nil || filesOf(e.ObjectNew) != nil)
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// owners finds the Server or the GameType of an object that serves files; or, for somebody else's
// object that has such a name, the one that waits for it to go.
func owners(kind string, ofFiles handler.MapFunc) handler.MapFunc {
	index := kit.OwnerIndex{Owner: v1alpha1.GroupVersion.WithKind(kind).GroupKind()}
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		if o.GetLabels()[wellknown.FilesLabel] != "" && index.Of(o) != nil {
			return index.Request(ctx, o)
		}
		return ofFiles(ctx, o)
	}
}

func (r *Reconciler) serverOfFiles(ctx context.Context, o client.Object) []reconcile.Request {
	name, ok := serverOf(o.GetName())
	if !ok {
		return nil
	}
	return r.ifAsks(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: name}, &v1alpha1.Server{})
}

func (r *Reconciler) gameTypeOfFiles(ctx context.Context, o client.Object) []reconcile.Request {
	server, ok := serverOf(o.GetName())
	name, isPlace := gameTypeOf(server)
	if !ok || !isPlace {
		return nil
	}
	return r.ifAsks(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: name}, &v1alpha1.GameType{})
}

func (r *Reconciler) ifAsks(ctx context.Context, key client.ObjectKey, o client.Object) []reconcile.Request {
	if r.Client.Get(ctx, key, o) != nil || filesOf(o) == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// besideFiles finds the owner of a Server whose game's Pod changes while its files are served.
func (r *Reconciler) besideFiles(kind string) handler.MapFunc {
	return func(_ context.Context, o client.Object) []reconcile.Request {
		key := client.ObjectKeyFromObject(o)
		if o.GetLabels()[wellknown.ServerLabel] == "" || !r.isUp(key) {
			return nil
		}
		if game := o.GetLabels()[wellknown.GameTypeLabel]; kind == "GameType" {
			key.Name = game
		}
		if key.Name == "" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: key}}
	}
}

// all finds all owners of a kind: each Pod is as the sidecar's PodTemplate says.
func (r *Reconciler) all(kind string) handler.MapFunc {
	index := kit.OwnerIndex{Owner: v1alpha1.GroupVersion.WithKind(kind).GroupKind()}
	return func(ctx context.Context, o client.Object) []reconcile.Request {
		if client.ObjectKeyFromObject(o) != r.SidecarTemplate {
			return nil
		}
		var list appsv1.DeploymentList
		if r.Client.List(ctx, &list, client.UnsafeDisableDeepCopy) != nil {
			return nil // only when the cache has stopped, and so has the operator
		}
		var requests []reconcile.Request
		for i := range list.Items {
			requests = append(requests, index.Request(ctx, &list.Items[i])...)
		}
		return requests
	}
}
