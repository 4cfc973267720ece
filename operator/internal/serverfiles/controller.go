package serverfiles

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/internal/patch"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/kit"
)

// fieldOwner is the owner of the fields that the controller applies, and beginner that of those
// with which an object begins.
const (
	fieldOwner = "dormouse-files"
	beginner   = "dormouse-files-begin"
)

const (
	// fillLook is when to look again whether a disk has what it begins with.
	fillLook = 2 * time.Second
	// refusedRetry is when to try again after the API server has refused something.
	refusedRetry = 15 * time.Second
	// startLook is when to look again at a Pod that isn't ready: nobody tells which node it gets.
	startLook = time.Second
)

// +kubebuilder:rbac:groups=dormouse.dev,resources=servers;gametypes,verbs=list;watch
// +kubebuilder:rbac:groups=dormouse.dev,resources=servers/status;gametypes/status,verbs=patch
// +kubebuilder:rbac:groups=dormouse.dev,resources=servers/finalizers;gametypes/finalizers,verbs=update
// +kubebuilder:rbac:groups=dormouse.dev,resources=elasticservices,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=services,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;create;patch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch;patch;delete
// +kubebuilder:rbac:groups="",namespace=dormouse-system,resources=podtemplates,verbs=list;watch
// +kubebuilder:rbac:groups="*",resources="*/scale",verbs=get;update
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler keeps what serves the files of Servers and of GameTypes.
type Reconciler struct {
	// Client reads from the cache, which has the indexes of SetupIndexes, and writes to the API
	// server. Of Deployments it needs those with wellknown.FilesLabel only. Its Services must have
	// their annotations where they have that label.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Events takes the events for users.
	Events events.EventRecorder
	// Reporter takes errors and panics; nil: they aren't reported.
	Reporter *errortracking.Reporter
	// SidecarTemplate names the PodTemplate whose first container has the program.
	SidecarTemplate types.NamespacedName
	// Disks keeps copies of the disks apart from what serves their files.
	Disks Disks
	// Copies knows from the cluster whose disks are being copied; nil: nobody's.
	Copies Copies
	// Used is told of a Server whose files were served until now; nil: nobody is. It must not block.
	Used func(server types.NamespacedName)
	// Now is the clock; nil is the real one.
	Now func() time.Time

	mu sync.Mutex
	// up are the Servers whose files are served now, with the Pod that was noted on the disks.
	up map[types.NamespacedName]types.UID
	// rooms are those of games that find no node. All can be lost: files end once more then.
	rooms map[types.NamespacedName]room
}

// Init makes the reconciler ready for use; Setup calls it.
func (r *Reconciler) Init() {
	r.up, r.rooms = map[types.NamespacedName]types.UID{}, map[types.NamespacedName]room{}
	if r.Now == nil {
		r.Now = time.Now
	}
}

// owner is a Server or a GameType.
type owner struct {
	object     client.Object
	conditions *[]metav1.Condition
	// sets are the disks whose files are to be served.
	sets []*disks.Set
}

func ownerOf(object client.Object) owner {
	switch o := object.(type) {
	case *v1alpha1.Server:
		of := owner{object: o, conditions: &o.Status.Conditions}
		if set := disks.OfServer(o); set != nil && set.Files != nil {
			of.sets = []*disks.Set{set}
		}
		return of
	case *v1alpha1.GameType:
		of := owner{object: o, conditions: &o.Status.Conditions}
		if o.Spec.Files != nil {
			of.sets = disks.OfGameType(o)
		}
		return of
	}
	return owner{}
}

// ReconcileServer keeps what serves the files of a Server.
func (r *Reconciler) ReconcileServer(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return r.reconcile(ctx, req, &v1alpha1.Server{})
}

// ReconcileGameType keeps what serves the files of a GameType's places.
func (r *Reconciler) ReconcileGameType(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	return r.reconcile(ctx, req, &v1alpha1.GameType{})
}

func (r *Reconciler) reconcile(ctx context.Context, req reconcile.Request, object client.Object) (result reconcile.Result, err error) {
	defer func() { result, err = kit.DefaultRetries.Result(result, err) }()
	found, err := kit.Read(ctx, r.Client, req, object, func(types.NamespacedName) {})
	if !found || !object.GetDeletionTimestamp().IsZero() {
		// What there is goes with its owner.
		return reconcile.Result{}, err
	}
	of := ownerOf(object)
	have, err := r.objectsOf(ctx, object)
	if err != nil || len(of.sets) == 0 && have.empty() && meta.FindStatusCondition(*of.conditions, conditions.FilesServed) == nil {
		return reconcile.Result{}, err
	}
	p := pass{Reconciler: r, owner: of, have: have, shared: map[string]disks.Sharing{}}
	var errs []error
	for _, set := range of.sets {
		errs = append(errs, p.keep(ctx, set))
	}
	errs = append(errs, p.removeOthers(ctx))
	if err := errors.Join(errs...); err != nil {
		return reconcile.Result{}, fmt.Errorf("serve the files of %s: %w", req, err)
	}
	if err := p.tell(ctx); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: p.again.Duration()}, nil
}

// tell emits the events of what was done, and writes the condition.
func (p *pass) tell(ctx context.Context) error {
	kit.Emit(p.Events, p.object, p.notices...)
	original, ok := p.object.DeepCopyObject().(client.Object)
	if !ok {
		return nil
	}
	before := meta.FindStatusCondition(*p.conditions, conditions.FilesServed)
	if before != nil {
		before = before.DeepCopy()
	}
	if len(p.sets) == 0 {
		meta.RemoveStatusCondition(p.conditions, conditions.FilesServed)
	} else {
		condition.SetAll(p.conditions, p.object.GetGeneration(), metav1.NewTime(p.Now()), summary(p.served))
	}
	// All conditions are one list to the API server. The write fails where somebody else's came
	// before, so that none of theirs is lost.
	written, err := patch.Status(ctx, p.Client, original, p.object)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if now := meta.FindStatusCondition(*p.conditions, conditions.FilesServed); written && now != nil && (before == nil || before.Reason != now.Reason) {
		switch now.Reason {
		case reasons.NameTaken, reasons.Refused, reasons.NoSidecar, reasons.DiskInUse:
			kit.Emit(p.Events, p.object, kit.Warning(now.Reason, "ServeFiles", "%s", now.Message))
		}
	}
	return nil
}
