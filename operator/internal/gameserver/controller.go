package gameserver

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/internal/patch"
	"dormouse.dev/dormouse/operator/internal/gameserver/lastlook"
	"dormouse.dev/dormouse/operator/internal/gameserver/slowstart"
	"dormouse.dev/dormouse/operator/internal/hostports"
	"dormouse.dev/dormouse/operator/internal/kit"
	"dormouse.dev/dormouse/operator/internal/refusal"
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
	// cacheLag is how long something that was just created is assumed to exist though the cache
	// doesn't show it.
	cacheLag = 10 * time.Second
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
	made *recent
	// missing are the nodes that Pods are on and that don't exist.
	missing *absences
	boots   slowstart.Boots
	learn   sync.Once
	looks   *lastlook.Looks
	emptied emptied
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
	r.made = newRecent(cacheLag)
	r.missing = &absences{first: map[string]time.Time{}}
	r.again = make(chan types.NamespacedName, 1024)
	if r.Now == nil {
		r.Now = time.Now
	}
	if r.Reports != nil {
		r.looks = lastlook.New(r.Reports.Look, func(key types.NamespacedName) { r.tell([]types.NamespacedName{key}) }, r.Now)
	}
}

// Reconcile brings one Server to its desired state.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (result reconcile.Result, err error) {
	r.learn.Do(func() { r.learnPorts(ctx) })
	if r.Allocations != nil {
		if err := r.Allocations.WaitSynced(ctx); err != nil {
			return reconcile.Result{}, fmt.Errorf("reconcile Server %s: %w", req, err)
		}
	}
	original := &v1alpha1.Server{}
	err = r.Client.Get(ctx, req.NamespacedName, original)
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
	p := makePlan(now, s, o)
	switch {
	case p.guard.lookFirst && r.looks != nil:
		p.requeueAfter.AtMost(r.looks.Begin(ctx, s, o.pod))
	case o.pod == nil || wanted(s) && !restarts(o.pod):
		r.looks.Forget(s.UID)
	}
	if p.release {
		if found, err := r.unseen(ctx, s, o); found || err != nil {
			return reconcile.Result{RequeueAfter: staleRetry}, err
		}
		return reconcile.Result{}, r.release(ctx, s)
	}
	if (p.failed || p.forced) && r.Reports != nil {
		// What such a pass does is done once, and only its status and its events say so.
		p.turn = true
		defer r.Reports.Turn(s.UID)()
		if r.Reports.WroteAfter(original) {
			return reconcile.Result{RequeueAfter: staleRetry}, nil
		}
	}
	done, err := r.apply(ctx, s, o, p)
	if err != nil {
		return reconcile.Result{}, err
	}
	requeueAfter, err := r.updateStatus(ctx, now, original, s, o, p, done)
	if err == nil {
		err = r.noteUse(ctx, s, o.pod)
	}
	return reconcile.Result{RequeueAfter: requeueAfter}, err
}

// outcome is the result of applying a plan.
type outcome struct {
	// ports are the host ports of the Pod that was to be created.
	ports portPick
	// refused is the API server's reason for refusing the Pod, which the user has to fix.
	refused error
}

// portPick is the result of picking a Server's host ports.
type portPick struct {
	// numbers are in the order of spec.ports.
	numbers []int32
	// trouble is why there are none, so that no Pod can be created.
	trouble error
}

// apply applies a plan: it takes its one action on the Pod.
func (r *Reconciler) apply(ctx context.Context, s *v1alpha1.Server, o observed, p plan) (done outcome, err error) {
	if o.orphan != nil {
		// Deleted after a live read: the Server in this cache may be the earlier one of the
		// name.
		if err := r.deleteOrphan(ctx, o.orphan); err != nil {
			return done, err
		}
	}
	if p.create && len(s.Spec.Storage) > 0 {
		end, busy, err := r.takeDisks(ctx, s)
		if busy != nil || err != nil {
			done.refused = busy
			return done, err
		}
		defer end()
	}
	if p.create {
		done.ports.numbers, done.ports.trouble = r.picker.Pick(s)
		p.create = done.ports.trouble == nil
	}
	if o.pod != nil || p.create {
		if err := r.keepGuard(ctx, s.Namespace); err != nil {
			return done, err
		}
	}
	if p.restoreKey != "" && r.restoreKey(ctx, s, p.restoreKey) && !gameRunning(s, o.pod) {
		p.erase = true // another Pod gets another key, or a token in a volume
	}
	if p.restoreCode && r.restoreCode(ctx, s, o.pod) {
		p.remove = true // its sidecar began with the code before
	}
	switch {
	case p.create:
		done.refused, err = r.createPod(ctx, s, done.ports.numbers)
	case p.restart:
		err = r.markRestart(ctx, o.pod)
	case p.remove:
		err = r.deletePod(ctx, o.pod)
	case p.erase:
		// But not if it has got a node, or changed otherwise, since it was observed.
		err = r.deletePod(ctx, o.pod, client.GracePeriodSeconds(0), client.Preconditions{ResourceVersion: &o.pod.ResourceVersion})
		if err == nil && p.refused {
			r.picker.Refuse(s)
		}
	case p.retire != "":
		// Somebody may have undone a drain meanwhile.
		err = r.Client.Delete(ctx, s, client.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion})
		err = wrapf(client.IgnoreNotFound(err), "delete Server %s", client.ObjectKeyFromObject(s))
	case o.pod != nil && o.pod.Labels[wellknown.DeletionAllowedLabel] != strconv.FormatBool(p.guard.empty):
		err = r.markPod(ctx, o.pod, p.guard.empty)
	}
	if err == nil && o.pod != nil && p.changed && wanted(s) {
		if _, err = r.keepClaims(ctx, s); refusal.Is(err) {
			kit.Emit(r.Events, s, kit.Warning("DiskNotChanged", "KeepDisk", "The disks stay as they are: %s", refusal.Words(err)))
			err = nil
		}
	}
	return done, err
}

// updateStatus writes the status and emits the events.
func (r *Reconciler) updateStatus(ctx context.Context, now time.Time, original, s *v1alpha1.Server, o observed, p plan, done outcome) (time.Duration, error) {
	setStatus(now, s, o, p, done.ports)
	if done.refused != nil {
		setRefused(now, s, done.refused)
		p.requeueAfter.AtMost(retryAfter(done.refused))
	}
	if s.Status.State == v1alpha1.ServerStarting {
		p.requeueAfter.AtMost(slowstart.Until(now, s, o.pod, o.usualBoot))
	}
	why, _ := unschedulable(orEmpty(o.pod))
	r.picker.Wait(client.ObjectKeyFromObject(s), hostports.Awaited(why) || done.ports.trouble != nil)
	if left := putOffFor(now, original, s, o, p); left > 0 && done.refused == nil {
		p.requeueAfter.AtMost(left)
		return p.requeueAfter.Duration(), nil
	}
	wrote, err := r.writeStatus(ctx, original, s, p.turn)
	if err != nil {
		return 0, err
	}
	if wrote {
		r.boots.Note(now, original, s, o.pod)
	}
	if wrote || p.forced || p.retire != "" {
		kit.Emit(r.Events, s, notices(original, s, p)...)
	}
	return p.requeueAfter.Duration(), nil
}

// errReported means that a report was written while a pass was under way.
var errReported = errors.New("a report of its sidecar was written meanwhile")

// writeStatus writes what changed. Reports are written concurrently, to fields of their own.
// The write needs the version that was read only where it clears those fields, or changes a
// condition: a cache that lags would make that change, its time and its event twice. Where a report
// was written at this replica since the Server was read, that is known without asking. turn is set where
// the pass has the Server's turn already.
func (r *Reconciler) writeStatus(ctx context.Context, original, s *v1alpha1.Server, turn bool) (bool, error) {
	a, b := &original.Status, &s.Status
	if equality.Semantic.DeepEqual(a, b) {
		return false, nil
	}
	if a.DeletionAllowed != b.DeletionAllowed || !equality.Semantic.DeepEqual(a.Game, b.Game) || !equality.Semantic.DeepEqual(a.Players, b.Players) ||
		!equality.Semantic.DeepEqual(a.Conditions, b.Conditions) {
		if r.Reports == nil {
			return patch.Status(ctx, r.Client, original, s)
		}
		if !turn {
			defer r.Reports.Turn(s.UID)()
		}
		if r.Reports.WroteAfter(original) {
			return false, apierrors.NewConflict(v1alpha1.GroupVersion.WithResource("servers").GroupResource(), s.Name, errReported)
		}
		wrote, err := patch.Status(ctx, r.Client, original, s)
		if wrote {
			r.Reports.Wrote(s.DeepCopy())
		}
		return wrote, err
	}
	err := r.Client.Status().Patch(ctx, s, client.MergeFrom(original))
	return err == nil, wrapf(client.IgnoreNotFound(err), "write the status of Server %s", client.ObjectKeyFromObject(s))
}

// observe reads what a plan is made from, from the cache alone.
func (r *Reconciler) observe(ctx context.Context, s *v1alpha1.Server) (observed, error) {
	o := observed{nodeLostAfter: r.NodeLostAfter, usualBoot: r.boots.Of(s)}
	if r.Allocations != nil {
		o.holder = r.Allocations.HolderOf(s)
	}
	pod := &corev1.Pod{}
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(s), pod)
	switch {
	case apierrors.IsNotFound(err):
		o.made = r.made.has(string(s.UID), r.Now())
		return o, nil
	case err != nil:
		return o, fmt.Errorf("read Pod %s: %w", client.ObjectKeyFromObject(s), err)
	case !metav1.IsControlledBy(pod, s):
		o.stranger = true
		if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "Server" && owner.Name == s.Name && pod.DeletionTimestamp == nil {
			o.orphan = pod
		}
		return o, nil
	}
	o.pod = pod
	o.lookAllows = r.looks.Allowed(s, pod)
	r.made.forget(string(s.UID))
	o.clashes = r.picker.Clashes(s, hostports.Of(s, pod))
	o.patience = r.picker.Patience(s.UID)
	r.tell(r.picker.Hold(s.UID, hostports.Of(s, pod)))
	if why, _ := unschedulable(pod); hostports.Awaited(why) && hostports.Picks(s) {
		o.better, o.betterInVain = r.picker.Better(s, false), r.picker.Better(s, true)
	}
	if pod.Spec.NodeName == "" {
		return o, nil
	}
	r.picker.Placed(s.UID)
	o.events = r.observeEvents(ctx, pod)
	node := &corev1.Node{}
	err = r.Client.Get(ctx, client.ObjectKey{Name: pod.Spec.NodeName}, node)
	switch {
	case err == nil:
		o.node = node
		r.missing.forget(node.Name)
	case apierrors.IsNotFound(err):
		o.nodeMissingSince = r.missing.since(pod.Spec.NodeName, r.Now())
	default:
		return o, fmt.Errorf("read Node %s: %w", pod.Spec.NodeName, err)
	}
	return o, nil
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
