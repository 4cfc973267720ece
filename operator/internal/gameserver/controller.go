package gameserver

import (
	"context"
	"encoding/json"
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
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/errortracking"
	"dormouse.dev/dormouse/internal/patch"
	"dormouse.dev/dormouse/operator/internal/udpports"
)

// fieldOwner is the owner of the fields that the controller applies.
const fieldOwner = "dormouse-operator"

// Times after which is looked again though nothing told to.
const (
	// soon is for what somebody else changed first: the cache will tell.
	soon = 50 * time.Millisecond
	// refusedRetry is for what the API server refused.
	refusedRetry = 15 * time.Second
	// cacheLag is for how long what was just made is taken to be there though the
	// cache doesn't show it.
	cacheLag = 10 * time.Second
)

// +kubebuilder:rbac:groups=dormouse.dev,resources=servers,verbs=get;list;watch;patch;delete
// +kubebuilder:rbac:groups=dormouse.dev,resources=servers/status,verbs=patch
// +kubebuilder:rbac:groups=dormouse.dev,resources=servers/finalizers,verbs=update
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",namespace=dormouse-system,resources=podtemplates,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;create;delete
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler keeps Servers' Pods.
type Reconciler struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Events takes what a person would ask about.
	Events events.EventRecorder
	// Reporter is told of errors and panics; nil tells nobody.
	Reporter *errortracking.Reporter
	// SidecarTemplate names the PodTemplate whose first container runs beside
	// each game.
	SidecarTemplate types.NamespacedName
	// OperatorURL is where sidecars report.
	OperatorURL string
	// LowPort and HighPort are the host ports to pick from.
	LowPort, HighPort int32
	// NodeLostAfter is how long a node may be silent before its Pods count as gone.
	NodeLostAfter time.Duration
	// Now is the clock.
	Now func() time.Time

	picker *picker
	// made are the Servers whose Pod was just made, and the namespaces whose guard
	// was, until the cache shows them.
	made *recent
	// missing are the nodes that Pods are on and that aren't there.
	missing *absences
	learn   sync.Once
	// freed brings the Servers that wait for a port when one came free.
	freed chan types.NamespacedName
}

// Init makes the reconciler ready for use; Setup calls it.
func (r *Reconciler) Init() {
	r.picker = newPicker(r.LowPort, r.HighPort, udpports.Services{Cache: r.Client})
	r.picker.now = func() time.Time { return r.Now() }
	r.made = newRecent(cacheLag)
	r.missing = &absences{first: map[string]time.Time{}}
	r.freed = make(chan types.NamespacedName, 1024)
	if r.Now == nil {
		r.Now = time.Now
	}
}

// Reconcile brings one Server to where it should be.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r.learn.Do(func() { r.learnPorts(ctx) })
	s := &v1alpha1.Server{}
	err := r.Client.Get(ctx, req.NamespacedName, s)
	if apierrors.IsNotFound(err) {
		return reconcile.Result{}, r.tidy(ctx, req.NamespacedName)
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read Server %s: %w", req, err)
	}
	if !controllerutil.ContainsFinalizer(s, v1alpha1.DeletionGuardFinalizer) {
		if !s.DeletionTimestamp.IsZero() {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, r.addFinalizer(ctx, s)
	}
	again, err := r.reconcile(ctx, s.DeepCopy())
	switch {
	case apierrors.IsConflict(err):
		// Somebody, likely a report, wrote first.
		return reconcile.Result{RequeueAfter: soon}, nil
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return reconcile.Result{RequeueAfter: refusedRetry}, nil
	}
	return reconcile.Result{RequeueAfter: again}, err
}

func (r *Reconciler) reconcile(ctx context.Context, s *v1alpha1.Server) (time.Duration, error) {
	original := s.DeepCopy()
	o, err := r.observe(ctx, s)
	if err != nil {
		return 0, err
	}
	now := r.Now()
	p := makePlan(now, s, o)
	if p.release {
		if found, err := r.unseen(ctx, s, o); found || err != nil {
			return soon, err
		}
		return 0, r.release(ctx, s)
	}
	if o.orphan != nil {
		// Asked live: this cache's Server may be the earlier one of the two.
		if err := r.deleteOrphan(ctx, o.orphan); err != nil {
			return 0, err
		}
	}
	if o.pod != nil || p.create {
		if err := r.keepGuard(ctx, s.Namespace); err != nil {
			return 0, err
		}
	}
	refused, err := r.act(ctx, s, &o, p)
	if err != nil {
		return 0, err
	}
	setStatus(now, s, o, p)
	if refused != nil {
		setRefused(now, s, refused)
		p.in(refusedRetry)
	}
	why, _ := unschedulable(orEmpty(o.pod))
	r.picker.wait(client.ObjectKeyFromObject(s), wantsPort(why) || p.portTrouble != nil)
	if left := quietFor(now, original, s, o); left > 0 && refused == nil {
		p.in(left)
		return p.again, nil
	}
	wrote, err := r.writeStatus(ctx, original, s)
	if err != nil {
		return 0, err
	}
	if wrote || p.forced || p.retire != "" {
		for _, n := range notices(original, s, p) {
			r.Events.Eventf(s, nil, n.kind, n.reason, n.action, "%s", n.note)
		}
	}
	return p.again, nil
}

// writeStatus writes what changed. Reports are written beside it to fields of
// their own: only where those are cleared must nobody have written meanwhile, nor
// where a condition changes, or a cache that is behind would make the change, its
// time and its event twice.
func (r *Reconciler) writeStatus(ctx context.Context, original, s *v1alpha1.Server) (bool, error) {
	a, b := &original.Status, &s.Status
	if a.DeletionAllowed != b.DeletionAllowed || !equality.Semantic.DeepEqual(a.Game, b.Game) || !equality.Semantic.DeepEqual(a.Players, b.Players) ||
		!equality.Semantic.DeepEqual(a.Conditions, b.Conditions) {
		return patch.Status(ctx, r.Client, original, s)
	}
	if equality.Semantic.DeepEqual(a, b) {
		return false, nil
	}
	err := r.Client.Status().Patch(ctx, s, client.MergeFrom(original))
	return err == nil, wrapf(client.IgnoreNotFound(err), "write the status of Server %s", client.ObjectKeyFromObject(s))
}

// observe reads what a plan builds on, from the cache alone.
func (r *Reconciler) observe(ctx context.Context, s *v1alpha1.Server) (observed, error) {
	o := observed{nodeLostAfter: r.NodeLostAfter}
	pod := &corev1.Pod{}
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(s), pod)
	switch {
	case apierrors.IsNotFound(err):
		o.made = r.made.has(string(s.UID), r.Now())
		o.pick = func() ([]int32, error) { return r.picker.pick(s) }
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
	r.made.forget(string(s.UID))
	o.clashes = r.picker.clashes(s, hostPortsOf(s, pod))
	o.better = func(inVain bool) bool { return r.picker.better(s, inVain) }
	o.patience = r.picker.patience(s.UID)
	r.tell(r.picker.hold(s.UID, hostPortsOf(s, pod)))
	if pod.Spec.NodeName == "" {
		return o, nil
	}
	r.picker.placed(s.UID)
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

// unseen looks for a Pod of a Server that is about to be let go which the cache
// doesn't show: somebody may have taken the label off by which it is watched. Such
// a Pod gets it back.
func (r *Reconciler) unseen(ctx context.Context, s *v1alpha1.Server, o observed) (bool, error) {
	if o.stranger {
		return false, nil
	}
	pod := &corev1.Pod{}
	err := r.Live.Get(ctx, client.ObjectKeyFromObject(s), pod)
	if err != nil || !metav1.IsControlledBy(pod, s) || ended(pod) {
		return false, wrapf(client.IgnoreNotFound(err), "look for the Pod of Server %s", client.ObjectKeyFromObject(s))
	}
	if pod.Labels[v1alpha1.ServerLabel] == s.Name {
		return true, nil // the cache is about to show it
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "labels": map[string]string{v1alpha1.ServerLabel: s.Name}}})
	if err != nil {
		return true, fmt.Errorf("encode a patch: %w", err)
	}
	err = r.Client.Patch(ctx, pod, client.RawPatch(types.MergePatchType, body))
	return true, wrapf(client.IgnoreNotFound(err), "label Pod %s", client.ObjectKeyFromObject(pod))
}

// act does what the plan says. refused is what the API server had against the
// Pod, which is the user's to mend.
func (r *Reconciler) act(ctx context.Context, s *v1alpha1.Server, o *observed, p plan) (refused, err error) {
	switch {
	case p.create:
		return r.createPod(ctx, s, p)
	case p.remove:
		return nil, r.deletePod(ctx, o.pod)
	case p.erase:
		// Not if it has got a node, or anything else, since it was looked at.
		err := r.deletePod(ctx, o.pod, client.GracePeriodSeconds(0), client.Preconditions{ResourceVersion: &o.pod.ResourceVersion})
		if err == nil && p.refused {
			r.picker.refuse(s)
		}
		return nil, err
	case p.retire != "":
		// Somebody may have taken back a drain meanwhile.
		err := r.Client.Delete(ctx, s, client.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion})
		return nil, wrapf(client.IgnoreNotFound(err), "delete Server %s", client.ObjectKeyFromObject(s))
	case o.pod != nil && o.pod.Labels[v1alpha1.DeletionAllowedLabel] != strconv.FormatBool(p.guard.empty):
		return nil, r.markPod(ctx, o.pod, p.guard.empty)
	}
	return nil, nil
}

func (r *Reconciler) createPod(ctx context.Context, s *v1alpha1.Server, p plan) (refused, err error) {
	sidecar, err := r.sidecar(ctx)
	if err != nil {
		return err, nil
	}
	if err := r.createClaims(ctx, s); err != nil {
		return forUser(err)
	}
	pod := buildPod(s, sidecar, p.ports, s.Spec.Deletion.Unreported != v1alpha1.DeletionDenied)
	err = r.Client.Create(ctx, pod)
	if apierrors.IsAlreadyExists(err) {
		return r.taken(ctx, s)
	}
	if err == nil {
		r.made.add(string(s.UID), r.Now())
	}
	return forUser(wrapf(err, "create Pod %s", client.ObjectKeyFromObject(s)))
}

// errStranger says that somebody else's Pod has the Server's name.
var errStranger = errors.New("a Pod of somebody else has the name")

// taken finds out whose a Pod is that has the Server's name and that the cache
// doesn't show.
func (r *Reconciler) taken(ctx context.Context, s *v1alpha1.Server) (refused, err error) {
	pod := &corev1.Pod{}
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(s), pod); err != nil {
		return nil, wrapf(client.IgnoreNotFound(err), "read Pod %s", client.ObjectKeyFromObject(s))
	}
	if !metav1.IsControlledBy(pod, s) {
		return errStranger, nil
	}
	_, err = r.unseen(ctx, s, observed{})
	r.made.add(string(s.UID), r.Now())
	return nil, err
}

// sidecar is what runs beside each game, by the administrator's PodTemplate.
func (r *Reconciler) sidecar(ctx context.Context) (Sidecar, error) {
	t := &corev1.PodTemplate{}
	if err := r.Client.Get(ctx, r.SidecarTemplate, t); err != nil {
		return Sidecar{}, fmt.Errorf("the PodTemplate %s, which says what the sidecar is, can't be read; apply config/sidecar: %w", r.SidecarTemplate, err)
	}
	if len(t.Template.Spec.Containers) == 0 {
		return Sidecar{}, fmt.Errorf("the PodTemplate %s, which says what the sidecar is, has no container", r.SidecarTemplate)
	}
	return Sidecar{Container: t.Template.Spec.Containers[0], OperatorURL: r.OperatorURL}, nil
}

// forUser tells what a user must mend from what time will.
func forUser(err error) (refused, _ error) {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil, err
	}
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return err, nil
	}
	return nil, err
}

func (r *Reconciler) deletePod(ctx context.Context, pod *corev1.Pod, opts ...client.DeleteOption) error {
	for i, opt := range opts {
		if p, ok := opt.(client.Preconditions); ok {
			p.UID = &pod.UID
			opts[i] = p
		}
	}
	if len(opts) == 0 {
		opts = append(opts, client.Preconditions{UID: &pod.UID})
	}
	err := r.Client.Delete(ctx, pod, opts...)
	return wrapf(client.IgnoreNotFound(err), "delete Pod %s", client.ObjectKeyFromObject(pod))
}

// markPod says on a Pod whether it may be evicted.
func (r *Reconciler) markPod(ctx context.Context, pod *corev1.Pod, deletable bool) error {
	var meta metav1.ObjectMeta
	setDeletable(&meta, deletable)
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID, "labels": meta.Labels, "annotations": meta.Annotations}})
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	err = r.Client.Patch(ctx, target, client.RawPatch(types.MergePatchType, body))
	return wrapf(client.IgnoreNotFound(err), "mark Pod %s", client.ObjectKeyFromObject(pod))
}

// release lets a deleted Server go, with what is only its own.
func (r *Reconciler) release(ctx context.Context, s *v1alpha1.Server) error {
	if err := r.deleteClaims(ctx, s); err != nil {
		return err
	}
	r.tell(r.picker.hold(s.UID, nil))
	before := s.DeepCopy()
	controllerutil.RemoveFinalizer(s, v1alpha1.DeletionGuardFinalizer)
	err := r.Client.Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return wrapf(client.IgnoreNotFound(err), "release Server %s", client.ObjectKeyFromObject(s))
}

func (r *Reconciler) addFinalizer(ctx context.Context, s *v1alpha1.Server) error {
	changed := s.DeepCopy()
	controllerutil.AddFinalizer(changed, v1alpha1.DeletionGuardFinalizer)
	err := r.Client.Patch(ctx, changed, client.MergeFromWithOptions(s, client.MergeFromWithOptimisticLock{}))
	return wrapf(client.IgnoreNotFound(err), "add the deletion guard to Server %s", client.ObjectKeyFromObject(s))
}

// tidy removes what a Server left that is gone: a Pod, if somebody took the
// guard away by force, and the namespace's guard with its last Server.
func (r *Reconciler) tidy(ctx context.Context, key types.NamespacedName) error {
	r.picker.wait(key, false)
	pod := &corev1.Pod{}
	err := r.Client.Get(ctx, key, pod)
	if err == nil {
		err = r.deleteOrphan(ctx, pod)
	}
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("remove what Server %s left: %w", key, err)
	}
	var servers v1alpha1.ServerList
	if err := r.Client.List(ctx, &servers, client.InNamespace(key.Namespace), client.Limit(1)); err != nil || len(servers.Items) > 0 {
		return wrapf(err, "list Servers of namespace %s", key.Namespace)
	}
	guard := &policyv1.PodDisruptionBudget{}
	err = r.Client.Get(ctx, types.NamespacedName{Namespace: key.Namespace, Name: guardName}, guard)
	if err == nil {
		err = r.Client.Delete(ctx, guard, client.Preconditions{UID: &guard.UID})
	}
	return wrapf(client.IgnoreNotFound(err), "delete the deletion guard of namespace %s", key.Namespace)
}

// deleteOrphan deletes the Pod of a Server that isn't there, which is asked of
// the API server itself: a cache may not know of a new one yet.
func (r *Reconciler) deleteOrphan(ctx context.Context, pod *corev1.Pod) error {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != "Server" || pod.DeletionTimestamp != nil {
		return nil
	}
	s := &v1alpha1.Server{}
	err := r.Live.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name}, s)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("look for its Server: %w", err)
	}
	if err == nil && s.UID == owner.UID {
		return nil
	}
	r.tell(r.picker.hold(owner.UID, nil))
	return r.deletePod(ctx, pod)
}

// keepGuard makes the namespace's PodDisruptionBudget what it should be.
func (r *Reconciler) keepGuard(ctx context.Context, namespace string) error {
	desired, have := buildGuard(namespace), &policyv1.PodDisruptionBudget{}
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(desired), have)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("read the deletion guard of namespace %s: %w", namespace, err)
	}
	if err == nil && guards(have, desired) || r.made.has(namespace, r.Now()) {
		return nil
	}
	// Many Servers of a new namespace come here at once.
	r.made.add(namespace, r.Now())
	if err := patch.Apply(ctx, r.Client, fieldOwner, desired); err != nil {
		r.made.forget(namespace)
		return err
	}
	return nil
}

func guards(have, desired *policyv1.PodDisruptionBudget) bool {
	return ptr.Equal(have.Spec.MinAvailable, desired.Spec.MinAvailable) &&
		metav1.FormatLabelSelector(have.Spec.Selector) == metav1.FormatLabelSelector(desired.Spec.Selector) &&
		ptr.Equal(have.Spec.UnhealthyPodEvictionPolicy, desired.Spec.UnhealthyPodEvictionPolicy)
}

// learnPorts fills the picker from the Pods that are there.
func (r *Reconciler) learnPorts(ctx context.Context) {
	var servers v1alpha1.ServerList
	if err := r.Client.List(ctx, &servers); err != nil {
		return // only when the cache is gone, and so are we
	}
	for i := range servers.Items {
		s := &servers.Items[i]
		pod := &corev1.Pod{}
		if picksPorts(s) && r.Client.Get(ctx, client.ObjectKeyFromObject(s), pod) == nil && metav1.IsControlledBy(pod, s) {
			r.picker.hold(s.UID, hostPortsOf(s, pod))
		}
	}
}

// tell wakes Servers that wait for a port. One that isn't told tries again by
// itself later.
func (r *Reconciler) tell(keys []types.NamespacedName) {
	for _, key := range keys {
		select {
		case r.freed <- key:
		default:
			return
		}
	}
}

func wrapf(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format+": %w", append(args, err)...)
}
