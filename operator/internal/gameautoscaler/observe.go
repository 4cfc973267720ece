package gameautoscaler

import (
	"cmp"
	"context"
	"fmt"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/gameautoscaler/planner"
	"dormouse.dev/dormouse/operator/internal/gametype"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/obstacle"
	"dormouse.dev/dormouse/operator/internal/report"
	"dormouse.dev/dormouse/operator/internal/target"
)

// scalable is a target, as the cache has it.
type scalable struct {
	ref target.Ref
	uid types.UID
	// desired is how many Servers are asked for.
	desired            int32
	updating, deleting bool
	labels             map[string]string
	annotations        map[string]string
	// servers are the target's, the cache's own.
	servers []v1alpha1.Server
}

// refOf is what a GameAutoscaler scales.
func refOf(gas *v1alpha1.GameAutoscaler) target.Ref {
	of := gas.Spec.TargetRef
	ref := target.Ref{Namespace: gas.Namespace}
	ref.APIVersion = cmp.Or(of.APIVersion, v1alpha1.GroupVersion.String())
	ref.Kind, ref.Name = string(cmp.Or(of.Kind, v1alpha1.AutoscalerTargetGameType)), of.Name
	return ref
}

// findTarget reads a GameAutoscaler's target, and returns what prevents it from being scaled.
func (r *Reconciler) findTarget(ctx context.Context, gas *v1alpha1.GameAutoscaler) (*scalable, *obstacle.Obstacle, error) {
	t := &scalable{ref: refOf(gas)}
	older, err := index.AutoscalerOf(ctx, r.Client, gas.Namespace, t.ref.Kind, t.ref.Name)
	if err != nil {
		return nil, nil, err
	}
	if older != nil && older.UID != gas.UID {
		return nil, &obstacle.Obstacle{Reason: reasons.TargetTaken, Message: fmt.Sprintf(
			"GameAutoscaler %s is older and scales %s %s: delete one of the two, or name another target.", older.Name, t.ref.Kind, t.ref.Name)}, nil
	}
	if found, err := r.readTarget(ctx, t); err != nil || !found {
		return nil, &obstacle.Obstacle{Reason: reasons.TargetNotFound, Message: fmt.Sprintf(
			"There is no %s %s in namespace %s: create it, or correct targetRef.", t.ref.Kind, t.ref.Name, gas.Namespace)}, err
	}
	if owner := t.labels[ownerLabel]; owner != "" && t.ref.Kind == string(v1alpha1.AutoscalerTargetFleet) {
		return nil, &obstacle.Obstacle{Reason: reasons.TargetOwned, Message: fmt.Sprintf(
			"Fleet %s belongs to GameType %s, which sets its replicas: name that in targetRef.", t.ref.Name, owner)}, nil
	}
	if other, err := r.otherAutoscaler(ctx, t); err != nil || other != "" {
		return nil, &obstacle.Obstacle{Reason: reasons.ScaledByOther, Message: fmt.Sprintf(
			"%s sets the replicas of %s %s: delete it, or this GameAutoscaler.", other, t.ref.Kind, t.ref.Name)}, err
	}
	return t, nil, nil
}

// readTarget reads the target itself.
func (r *Reconciler) readTarget(ctx context.Context, t *scalable) (found bool, err error) {
	key := client.ObjectKey{Namespace: t.ref.Namespace, Name: t.ref.Name}
	var object client.Object
	if t.ref.Kind == string(v1alpha1.AutoscalerTargetFleet) {
		f := &v1alpha1.Fleet{}
		object, err = f, r.Client.Get(ctx, key, f)
		t.desired, t.updating = ptr.Deref(f.Spec.Replicas, 1), updating(f.Status.Conditions)
	} else {
		gt := &v1alpha1.GameType{}
		object, err = gt, r.Client.Get(ctx, key, gt)
		t.desired, t.updating = gametype.AutoscaledReplicas(&gt.Spec), updating(gt.Status.Conditions)
	}
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read %s: %w", t.ref, err)
	}
	t.uid, t.labels, t.annotations = object.GetUID(), object.GetLabels(), object.GetAnnotations()
	t.deleting = !object.GetDeletionTimestamp().IsZero()
	return true, nil
}

// updating reports whether Servers of several revisions take players.
func updating(list []metav1.Condition) bool {
	c := meta.FindStatusCondition(list, conditions.Updated)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == reasons.Updating
}

// otherAutoscaler names a HorizontalPodAutoscaler of the target; empty: there is none.
func (r *Reconciler) otherAutoscaler(ctx context.Context, t *scalable) (string, error) {
	var list autoscalingv2.HorizontalPodAutoscalerList
	err := r.Client.List(ctx, &list, client.InNamespace(t.ref.Namespace), client.MatchingFields{indexHPA: t.ref.Kind + "/" + t.ref.Name}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return "", fmt.Errorf("list the HorizontalPodAutoscalers of %s: %w", t.ref, err)
	}
	if len(list.Items) == 0 {
		return "", nil
	}
	hpa := &list.Items[0]
	if owner := metav1.GetControllerOf(hpa); owner != nil {
		return fmt.Sprintf("%s %s, by its HorizontalPodAutoscaler %s,", owner.Kind, owner.Name, hpa.Name), nil
	}
	return "HorizontalPodAutoscaler " + hpa.Name, nil
}

// observe reads the target's Servers.
func (r *Reconciler) observe(ctx context.Context, t *scalable) (planner.Observed, error) {
	o := planner.Observed{Desired: t.desired, Updating: t.updating, Deleting: t.deleting, Fresh: true}
	if r.UsualBoot != nil {
		o.BootTime = r.UsualBoot(t.ref.Kind, t.ref.Namespace, t.ref.Name)
	}
	var err error
	if t.servers, err = report.ServersOf(ctx, r.Client, t.ref.Namespace, t.ref.Kind+"/"+t.ref.Name); err != nil {
		return o, err
	}
	for i := range t.servers {
		count(&o, &t.servers[i])
	}
	return o, nil
}

// count adds a Server. One whose node is lost counts as little as one that is gone: a Fleet has another
// in its stead.
func count(o *planner.Observed, s *v1alpha1.Server) {
	if s.Spec.Drain || !s.DeletionTimestamp.IsZero() || !s.Spec.Runs() || lost(s) {
		return
	}
	o.Current++
	var current, capacity int64
	if p := s.Status.Players; p != nil {
		current, capacity = int64(p.Current), int64(p.Capacity)
	}
	o.Players += current
	switch s.Status.State {
	case v1alpha1.ServerReady:
		if current == 0 {
			o.Empty++
		}
	case v1alpha1.ServerAllocated, v1alpha1.ServerReserved:
	default:
		return
	}
	o.Ready++
	o.Capacity += capacity
}

// lost reports whether a Server's node is lost.
func lost(s *v1alpha1.Server) bool {
	c := meta.FindStatusCondition(s.Status.Conditions, conditions.Ready)
	return c != nil && c.Status != metav1.ConditionTrue && c.Reason == reasons.NodeLost
}

// needsReports reports whether a spec has policies that go by what Servers report now.
func needsReports(spec *v1alpha1.GameAutoscalerSpec) bool {
	for i := range spec.Policies {
		if p := &spec.Policies[i]; p.Schedule == nil && p.Forecast == nil {
			return true
		}
	}
	return false
}

// fresh reports whether each Server that takes players has reported lately, to any replica of the
// operator.
func (r *Reconciler) fresh(ctx context.Context, t *scalable) bool {
	recent, err := r.Players.Recent(ctx, t.ref.Namespace, t.ref.Kind+"/"+t.ref.Name)
	if err != nil {
		return false // a replica doesn't answer, and its reports aren't known
	}
	for i := range t.servers {
		s := &t.servers[i]
		takes := planner.Observed{}
		if count(&takes, s); takes.Ready == 0 || s.Status.Game == nil {
			continue
		}
		if said, ok := recent[s.Name]; !ok || said.PodUID != s.Status.Game.PodUID {
			return false
		}
	}
	return true
}
