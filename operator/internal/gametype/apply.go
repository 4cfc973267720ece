package gametype

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	fleets "dormouse.dev/dormouse/operator/internal/fleet"
	"dormouse.dev/dormouse/operator/internal/pending"
	"dormouse.dev/dormouse/operator/internal/refusal"
	"dormouse.dev/dormouse/operator/internal/templatehash"
	"dormouse.dev/dormouse/operator/internal/text"
)

var kind = v1alpha1.GroupVersion.WithKind("GameType")

// maxForced bounds how many Servers one pass ends by force. The next pass follows.
const maxForced = 100

// outcome is the result of applying a plan.
type outcome struct {
	// created is the name of the Fleet that was created. Changed are the Fleets that were
	// changed, with their previous replicas, and removed those that were deleted.
	created string
	changed []scaling
	removed []string
	// forced are the Servers that were ended by force.
	forced []string
	// stale is set where something had changed since the plan was made.
	stale bool
	// refused is the API server's message where it refuses the Fleet; else empty.
	refused string
	// failed is an error that leads to another try.
	failed error
}

type scaling struct {
	name     string
	from, to int32
	current  bool
}

// take takes in the result of a call.
func (o *outcome) take(err error, done func()) {
	switch {
	case err == nil:
		done()
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		o.stale = true // it has changed since the plan was made
	default:
		o.failed = errors.Join(o.failed, err)
	}
}

// apply applies a plan. Reductions go first: if the rest fails, no bound of an update is
// violated.
func (r *Reconciler) apply(ctx context.Context, seen *observed, m *state, p plan) outcome {
	gt := seen.acting
	var o outcome
	var created *v1alpha1.Fleet
	if p.create {
		created, o.failed = desiredFleet(gt, p)
	}
	for _, c := range p.change {
		o.take(r.change(ctx, seen, m, c), func() {
			if c.replicas != c.fleet.desired {
				o.changed = append(o.changed, scaling{c.fleet.name, c.fleet.desired, c.replicas, c.fleet == p.current})
			}
		})
	}
	if created != nil {
		sent := created.Spec.Template
		switch err := r.Client.Create(ctx, created); {
		case err == nil:
			r.noteStored(ctx, created, sent, &o)
			o.created = created.Name
			m.number = max(m.number, p.number)
			remember(m.writes, r.Now(), pending.Create, observe(gt, &seen.template, created), created.Spec.Template)
		case apierrors.IsAlreadyExists(err):
			r.collide(ctx, seen, created.Name, &o)
		case refusal.Is(err):
			o.refused = words(err)
		default:
			o.failed = errors.Join(o.failed, fmt.Errorf("create Fleet %s: %w", created.Name, err))
		}
	}
	for _, f := range p.force {
		r.force(ctx, gt, f, &o)
	}
	for _, f := range p.remove {
		o.take(r.remove(ctx, gt, m, f, metav1.DeletePropagationBackground), func() { o.removed = append(o.removed, f.name) })
	}
	return o
}

// noteStored notes on a new Fleet what the API server stored as its template.
func (r *Reconciler) noteStored(ctx context.Context, f *v1alpha1.Fleet, sent v1alpha1.ServerTemplate, o *outcome) {
	if equality.Semantic.DeepEqual(f.Spec.Template, sent) {
		return
	}
	before := f.DeepCopy()
	f.Annotations[wellknown.StoredHashAnnotation] = templatehash.Of(f.Spec.Template)
	if err := r.Client.Patch(ctx, f, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		o.failed = errors.Join(o.failed, fmt.Errorf("note what is stored of Fleet %s: %w", f.Name, err))
	}
}

// collide finds out who has a new Fleet's name. A Fleet that the cache doesn't show yet will
// show soon. For one that can't be used another name is tried next.
func (r *Reconciler) collide(ctx context.Context, seen *observed, name string, o *outcome) {
	gt, have := seen.acting, &v1alpha1.Fleet{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: gt.Namespace, Name: name}, have)
	o.stale = true
	if err == nil && (!metav1.IsControlledBy(have, gt) || !have.DeletionTimestamp.IsZero() || !observe(gt, &seen.template, have).current) {
		count := int32(1)
		if gt.Status.CollisionCount != nil {
			count += *gt.Status.CollisionCount
		}
		gt.Status.CollisionCount = &count
	}
	if err != nil && !apierrors.IsNotFound(err) {
		o.failed = errors.Join(o.failed, fmt.Errorf("read Fleet %s: %w", name, err))
	}
}

// change changes a Fleet, if it hasn't changed since it was observed.
func (r *Reconciler) change(ctx context.Context, seen *observed, m *state, c change) error {
	changed, err := changeFleet(ctx, r.Client, seen.acting, c, nil)
	if err != nil {
		return err
	}
	m.number = max(m.number, c.number)
	remember(m.writes, r.Now(), pending.Change, observe(seen.acting, &seen.template, changed), changed.Spec.Template)
	return nil
}

// changeFleet writes a change, with additional annotations.
func changeFleet(ctx context.Context, to client.Client, gt *v1alpha1.GameType, c change, more map[string]any) (*v1alpha1.Fleet, error) {
	// Null takes away what is there.
	annotations := map[string]any{
		wellknown.RevisionAnnotation:      fmt.Sprint(c.number),
		wellknown.RetiringSinceAnnotation: nil,
		wellknown.TrialAnnotation:         nil,
	}
	if !c.retiringSince.IsZero() {
		annotations[wellknown.RetiringSinceAnnotation] = c.retiringSince.UTC().Format(time.RFC3339)
	}
	if c.trial != "" {
		annotations[wellknown.TrialAnnotation] = c.trial
	}
	maps.Copy(annotations, more)
	spec := map[string]any{"replicas": c.replicas, "scaleDown": gt.Spec.ScaleDown, "scheduling": gt.Spec.Scheduling}
	switch {
	case c.places != "":
		spec["places"] = c.places
	case len(gt.Spec.Template.Spec.Storage) > 0 || c.fleet.places != "":
		spec["places"] = nil
	}
	if ports := gt.Spec.Template.Spec.Ports; c.fleet.current && c.fleet.unlike && len(ports) > 0 {
		spec["template"] = map[string]any{"spec": map[string]any{"ports": templatehash.OfServers(ports)}}
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": c.fleet.uid, "resourceVersion": c.fleet.resourceVersion, "annotations": annotations},
		"spec":     spec,
	})
	if err != nil {
		return nil, fmt.Errorf("write the patch of Fleet %s: %w", c.fleet.name, err)
	}
	changed := &v1alpha1.Fleet{ObjectMeta: metav1.ObjectMeta{Namespace: gt.Namespace, Name: c.fleet.name}}
	if err := to.Patch(ctx, changed, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return nil, fmt.Errorf("set Fleet %s to %d Servers: %w", c.fleet.name, c.replicas, err)
	}
	return changed, nil
}

// remove deletes a Fleet, if it hasn't changed since it was observed.
func (r *Reconciler) remove(ctx context.Context, gt *v1alpha1.GameType, m *state, f *fleet, how metav1.DeletionPropagation) error {
	fleet := &v1alpha1.Fleet{ObjectMeta: metav1.ObjectMeta{Namespace: gt.Namespace, Name: f.name}}
	err := r.Client.Delete(ctx, fleet, client.PropagationPolicy(how), client.Preconditions{UID: &f.uid, ResourceVersion: &f.resourceVersion})
	if err != nil {
		return fmt.Errorf("delete Fleet %s: %w", f.name, err)
	}
	remember(m.writes, r.Now(), pending.Delete, *f, v1alpha1.ServerTemplate{})
	return nil
}

// force ends the Servers of a Fleet whose time is over: each is told that it ends even with
// players, and is deleted. Its own controller gives its Pod the grace period.
func (r *Reconciler) force(ctx context.Context, gt *v1alpha1.GameType, f *fleet, o *outcome) {
	var list v1alpha1.ServerList
	if err := r.Client.List(ctx, &list, client.InNamespace(gt.Namespace), client.MatchingFields{fleets.IndexOwner: string(f.uid)}); err != nil {
		o.failed = errors.Join(o.failed, fmt.Errorf("list the Servers of Fleet %s: %w", f.name, err))
		return
	}
	done := 0
	for i := range list.Items {
		s := &list.Items[i]
		drains := s.Spec.Drain || !s.DeletionTimestamp.IsZero()
		if s.Spec.Deletion.Force && !s.DeletionTimestamp.IsZero() || f.desired > 0 && !drains {
			continue
		}
		if done++; done > maxForced {
			o.stale = true // Soon again.
			return
		}
		o.take(r.forceOne(ctx, s), func() { o.forced = append(o.forced, s.Name) })
	}
}

func (r *Reconciler) forceOne(ctx context.Context, s *v1alpha1.Server) error {
	before := s.DeepCopy()
	s.Spec.Deletion.Force = true
	if !before.Spec.Deletion.Force {
		if err := r.Client.Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
			return fmt.Errorf("set spec.deletion.force of Server %s: %w", s.Name, err)
		}
	}
	if !s.DeletionTimestamp.IsZero() {
		return nil
	}
	if err := r.Client.Delete(ctx, s, client.Preconditions{UID: &s.UID}); err != nil {
		return fmt.Errorf("delete Server %s: %w", s.Name, err)
	}
	return nil
}

// words are the API server's message, bounded.
func words(err error) string { return text.Bounded(refusal.Words(err)) }

// desiredTemplate is the GameType's template with its label, for the Servers and for their
// Pods: the Server controller passes on only labels that it knows. A requested restart makes it
// a different template.
func desiredTemplate(gt *v1alpha1.GameType) v1alpha1.ServerTemplate {
	t := *gt.Spec.Template.DeepCopy()
	t.Spec.Ports = templatehash.OfServers(t.Spec.Ports)
	if at, ok := gt.Annotations[wellknown.RestartedAtAnnotation]; ok {
		annotations := make(map[string]string, len(t.Metadata.Annotations)+1)
		maps.Copy(annotations, t.Metadata.Annotations)
		annotations[wellknown.RestartedAtAnnotation] = at
		t.Metadata.Annotations = annotations
	}
	if t.Metadata.Labels == nil {
		t.Metadata.Labels = map[string]string{}
	}
	t.Metadata.Labels[wellknown.GameTypeLabel] = gt.Name
	metav1.SetMetaDataLabel(&t.Spec.Template.ObjectMeta, wellknown.GameTypeLabel, gt.Name)
	return t
}

// desiredFleet is the Fleet of the GameType's template.
func desiredFleet(gt *v1alpha1.GameType, p plan) (*v1alpha1.Fleet, error) {
	t := desiredTemplate(gt)
	hash, err := hashOf(t, gt.Status.CollisionCount)
	if err != nil {
		return nil, fmt.Errorf("name the Fleet of GameType %s/%s: %w", gt.Namespace, gt.Name, err)
	}
	return &v1alpha1.Fleet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: gt.Namespace,
			Name:      gt.Name + "-" + hash,
			Labels:    map[string]string{wellknown.GameTypeLabel: gt.Name},
			Annotations: map[string]string{
				wellknown.RevisionAnnotation: strconv.FormatInt(p.number, 10), wellknown.TemplateHashAnnotation: templatehash.Of(t),
			},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(gt, kind)},
		},
		Spec: v1alpha1.FleetSpec{Replicas: &p.first, Places: p.firstPlaces, Template: t, ScaleDown: gt.Spec.ScaleDown, Scheduling: gt.Spec.Scheduling},
	}, nil
}

// hashOf names a template. Equal templates may be written in more than one way, so a Fleet is
// found by comparing and not by its hash.
func hashOf(t v1alpha1.ServerTemplate, collisions *int32) (string, error) {
	text, err := json.Marshal(t)
	if err != nil {
		return "", err
	}
	hash := fnv.New32a()
	_, _ = hash.Write(text) // a hash accepts any input
	if collisions != nil {
		_, _ = fmt.Fprint(hash, *collisions)
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(hash.Sum32()), 10)), nil
}

// revisionName is the end of a Fleet's name.
func revisionName(gt *v1alpha1.GameType, fleet string) string {
	return strings.TrimPrefix(fleet, gt.Name+"-")
}

// selector selects the Pods of all the GameType's Servers.
func selector(gt *v1alpha1.GameType) string { return wellknown.GameTypeLabel + "=" + gt.Name }
