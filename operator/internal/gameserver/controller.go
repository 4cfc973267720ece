package gameserver

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/operator/internal/allocation/book"
	"dormouse.dev/dormouse/operator/internal/gameserver/lastlook"
	"dormouse.dev/dormouse/operator/internal/gameserver/planner"
	"dormouse.dev/dormouse/operator/internal/gameserver/slowstart"
	"dormouse.dev/dormouse/operator/internal/hostports"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/pending"
	"dormouse.dev/dormouse/operator/internal/udpports"
)

// fieldOwner is the owner of the fields that the controller applies.
const fieldOwner = "dormouse-operator"

// Times after which a Server is looked at again though no watched object changes.
const (
	// staleRetry follows a write that somebody else's write came before. The cache will show
	// it.
	staleRetry = 50 * time.Millisecond
	// refusedRetry follows a refusal of the API server.
	refusedRetry = 15 * time.Second
)

// retries are for errors that time resolves, once there is a pass to do again.
var retries = kit.Retries{Conflict: staleRetry, NamespaceEnding: refusedRetry}

// +kubebuilder:rbac:groups=dormouse.dev,resources=servers,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=dormouse.dev,resources=servers/status,verbs=patch
// +kubebuilder:rbac:groups=dormouse.dev,resources=servers/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",namespace=dormouse-system,resources=podtemplates,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;create;patch;delete
// +kubebuilder:rbac:groups=dormouse.dev,resources=fleets,verbs=list;watch
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=events,verbs=list
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler keeps the Servers' Pods.
type Reconciler struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Events takes the events for users.
	Events events.EventRecorder
	// Reporter takes errors and panics; nil: they aren't reported.
	Reporter *errortracking.Reporter
	// SidecarTemplate names the PodTemplate whose first container runs beside
	// each game.
	SidecarTemplate types.NamespacedName
	// Reports are the sidecars' reports at this replica, and the way to ask them; nil: reports are
	// known from the Servers' status only.
	Reports Reports
	// Allocations knows which Servers Allocations have; nil: none does.
	Allocations Allocations
	// Disks keeps the starts of games and copies of their disks apart; nil: nothing copies them.
	Disks Disks
	// Filling knows what keeps disks from being filled; nil: nothing does.
	Filling Filling
	// Copies knows from the cluster whose disks are being copied; nil: nobody's.
	Copies Copies
	// Keys are those with which sidecars sign their reports; nil: all have mounted tokens.
	Keys Keys
	// OperatorURL is where sidecars report.
	OperatorURL string
	// APIURL is where games find the REST API.
	APIURL string
	// LowPort and HighPort bound the host ports to pick from.
	LowPort, HighPort int32
	// NodeLostAfter is how long a node may be silent before its Pods count as gone.
	NodeLostAfter time.Duration
	// Now is the clock.
	Now func() time.Time

	picker *hostports.Picker
	// made are the Servers whose Pod was just created, and the namespaces whose
	// PodDisruptionBudget was, until the cache shows them.
	made *pending.Recent
	// missing are the nodes that Pods are on and that don't exist.
	missing *absences
	boots   slowstart.Boots
	learn   sync.Once
	looks   *lastlook.Looks
	emptied emptied
	// backlog has the first passes that nobody waits for.
	backlog *kit.Backlog
	// used are the Pods, by the UIDs of their Servers, whose disks say since when they are used.
	used sync.Map
	// again brings Servers: those that wait for a host port when one comes free, and those whose
	// sidecar has replied.
	again chan types.NamespacedName
}

// Keys are what sidecars sign their reports with.
type Keys interface {
	// Provide returns the ID of the key for new Pods of a namespace, once that has a Secret
	// with it; an error is why it has none.
	Provide(ctx context.Context, namespace string) (id string, err error)
	// Restore makes the Secret with a key again, unless it is there.
	Restore(ctx context.Context, namespace, id string) error
}

// Init makes the reconciler ready for use; Setup calls it.
func (r *Reconciler) Init() {
	r.picker = hostports.NewPicker(r.LowPort, r.HighPort, udpports.Services{Cache: r.Client}, func() time.Time { return r.Now() })
	r.made = pending.NewRecent(planner.CacheLag)
	r.missing = &absences{first: map[string]time.Time{}}
	r.again = make(chan types.NamespacedName, 1024)
	r.backlog = kit.NewBacklog(maxBacklog)
	if r.Now == nil {
		r.Now = time.Now
	}
	if r.Reports != nil {
		r.looks = lastlook.New(r.Reports.Look, func(key types.NamespacedName) { r.tell([]types.NamespacedName{key}) }, r.Now)
	}
}

// Reconcile brings one Server to its desired state.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (result reconcile.Result, err error) {
	defer r.backlog.Begin(req)()
	r.learn.Do(func() { r.learnPorts(ctx) })
	if r.Allocations != nil {
		if err := r.Allocations.WaitSynced(ctx); err != nil {
			return reconcile.Result{}, fmt.Errorf("reconcile Server %s: %w", req, err)
		}
	}
	// What comes from the cache is only read.
	original := &v1alpha1.Server{}
	err = r.Client.Get(ctx, req.NamespacedName, original, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		requeueAfter, err := r.tidy(ctx, req.NamespacedName)
		return reconcile.Result{RequeueAfter: requeueAfter}, err
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read Server %s: %w", req, err)
	}
	if r.Reports != nil {
		original = r.Reports.Latest(original)
	}
	s := original.DeepCopy()
	if !controllerutil.ContainsFinalizer(s, wellknown.DeletionGuardFinalizer) {
		if !s.DeletionTimestamp.IsZero() {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, r.addFinalizer(ctx, s)
	}
	defer func() { result, err = retries.Result(result, err) }()
	o, err := r.observe(ctx, s)
	if err != nil {
		return reconcile.Result{}, err
	}
	now := r.Now()
	p := planner.Make(now, s, o)
	switch {
	case r.looks == nil:
	case p.LookFirst:
		p.RequeueAfter.AtMost(r.looks.Begin(ctx, s, o.Pod))
	case o.Pod == nil || !planner.Ending(s, o.Pod):
		r.looks.Forget(s.UID)
	}
	if p.Release {
		if found, err := r.unseen(ctx, s, o); found || err != nil {
			return reconcile.Result{RequeueAfter: staleRetry}, err
		}
		return reconcile.Result{}, r.release(ctx, s)
	}
	turn := false
	if (p.Failed || p.Forced) && r.Reports != nil {
		// What such a pass does is done once, and only its status and its events say so.
		turn = true
		defer r.Reports.Turn(s.UID)()
		if r.Reports.WroteAfter(original) {
			return reconcile.Result{RequeueAfter: staleRetry}, nil
		}
	}
	done, err := r.apply(ctx, s, o, p)
	if err != nil {
		return reconcile.Result{}, err
	}
	if done.unguarded {
		p.RequeueAfter.AtMost(refusedRetry)
	}
	done.turn = turn
	requeueAfter, err := r.updateStatus(ctx, now, original, s, o, p, done)
	if err == nil {
		err = r.noteUse(ctx, s, o.Pod)
	}
	return reconcile.Result{RequeueAfter: requeueAfter}, err
}

// release lets a deleted Server go, with everything that belongs to it alone.
func (r *Reconciler) release(ctx context.Context, s *v1alpha1.Server) error {
	if err := r.deleteClaims(ctx, s); err != nil {
		return err
	}
	r.tell(r.picker.Hold(s.UID, nil))
	r.looks.Forget(s.UID)
	r.used.Delete(s.UID)
	err := kit.RemoveFinalizer(ctx, r.Client, s, wellknown.DeletionGuardFinalizer)
	return wrapf(client.IgnoreNotFound(err), "release Server %s", client.ObjectKeyFromObject(s))
}

func (r *Reconciler) addFinalizer(ctx context.Context, s *v1alpha1.Server) error {
	err := kit.AddFinalizer(ctx, r.Client, s, wellknown.DeletionGuardFinalizer)
	return wrapf(client.IgnoreNotFound(err), "add the deletion guard to Server %s", client.ObjectKeyFromObject(s))
}

// tidy removes what a Server that is gone left behind: a Pod, if somebody removed the finalizer
// by force, and the namespace's PodDisruptionBudget with its last Server. It returns after how
// long to look for that; 0: not for this Server.
func (r *Reconciler) tidy(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	r.picker.Wait(key, false)
	pod := &corev1.Pod{}
	err := r.Client.Get(ctx, key, pod)
	if err == nil {
		err = r.deleteOrphan(ctx, pod)
	}
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("remove what Server %s left: %w", key, err)
	}
	if look, after := r.emptied.look(key); !look {
		return after, nil
	}
	var servers v1alpha1.ServerList
	if err := r.Client.List(ctx, &servers, client.InNamespace(key.Namespace), client.Limit(1), client.UnsafeDisableDeepCopy); err != nil || len(servers.Items) > 0 {
		return 0, wrapf(err, "list Servers of namespace %s", key.Namespace)
	}
	guard := &policyv1.PodDisruptionBudget{}
	err = r.Client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: guardName}, guard)
	if err == nil {
		err = r.Client.Delete(ctx, guard, client.Preconditions{UID: &guard.UID})
	}
	return 0, wrapf(client.IgnoreNotFound(err), "delete the deletion guard of namespace %s", key.Namespace)
}

func wrapf(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}

// UsualBoot is how long the Servers of a GameType or a Fleet usually take from their container's
// start until they are Ready, as this process has seen it; 0: not known.
func (r *Reconciler) UsualBoot(kind, namespace, name string) time.Duration {
	return r.boots.OfOwner(kind, namespace, name)
}

// Reports are what sidecars have told, and what they are asked.
type Reports interface {
	// Look has the sidecar of a Server's Pod look anew whether the Server may be deleted.
	Look(ctx context.Context, server *v1alpha1.Server, podUID types.UID) reportapi.Looked
	// Turn waits until nobody else at this replica writes a Server's status, and returns what ends
	// the caller's turn.
	Turn(server types.UID) (end func())
	// Latest is a Server as the cache has it, or as a write left it that the cache doesn't have
	// yet.
	Latest(cached *v1alpha1.Server) *v1alpha1.Server
	// WroteAfter reports whether something later than this Server was written at this replica.
	WroteAfter(server *v1alpha1.Server) bool
	// Wrote notes how a write left a Server.
	Wrote(server *v1alpha1.Server)
}

// Allocations knows which Servers Allocations have.
type Allocations interface {
	// WaitSynced waits until it knows.
	WaitSynced(ctx context.Context) error
	// HolderOf is who has a Server.
	HolderOf(namespace, name string, uid types.UID) book.Holder
	// Servers asks for passes of Servers that are held, or let go.
	Servers() source.Source
}
