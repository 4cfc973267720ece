package serverfiles

import (
	"context"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/kit"
)

// endGrace is how long a Pod may take to end for which a game waits.
const endGrace = 1

// isUp reports whether the files of a Server are served now, as far as is known.
func (r *Reconciler) isUp(server types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, up := r.up[server]
	return up
}

func (r *Reconciler) setUp(server types.NamespacedName, noted types.UID, up bool) {
	r.mu.Lock()
	_, was := r.up[server]
	if up {
		r.up[server] = noted
	} else {
		delete(r.up, server)
	}
	r.mu.Unlock()
	if was && !up && r.Used != nil {
		r.Used(server)
	}
}

func (r *Reconciler) noted(server types.NamespacedName) types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.up[server]
}

func (r *Reconciler) forget(d *appsv1.Deployment) {
	if server, ok := serverOf(d.Name); ok {
		key := types.NamespacedName{Namespace: d.Namespace, Name: server}
		r.setUp(key, "", false)
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.rooms, key)
	}
}

// roomOf is the room that a Server's game has had.
func (p *pass) roomOf(set *disks.Set, files []filePod, game *gamePod) room {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.rooms[set.Key()].after(files, game, p.Now())
	if now.game == "" {
		delete(p.rooms, set.Key())
	} else {
		p.rooms[set.Key()] = now
	}
	return now
}

// deploymentOf is the Server's Deployment; nil where the cache has none.
func (p *pass) deploymentOf(set *disks.Set) *appsv1.Deployment {
	for i := range p.have.deployments {
		if d := &p.have.deployments[i]; d.Name == Name(set.Name) {
			return d
		}
	}
	return nil
}

// makeRoom looks at the Pods while the files are served: it notes their use on the disks, and ends
// those that keep the disks from the game.
func (p *pass) makeRoom(ctx context.Context, set *disks.Set, ready metav1.Condition) (metav1.Condition, error) {
	d := p.deploymentOf(set)
	if d == nil || ptr.Deref(d.Spec.Replicas, 1) == 0 {
		p.setUp(set.Key(), "", false)
		return ready, nil
	}
	// From here on the game's changes count.
	p.setUp(set.Key(), p.noted(set.Key()), true)
	var list corev1.PodList
	if err := p.Live.List(ctx, &list, client.InNamespace(set.Namespace), client.MatchingLabels{wellknown.FilesLabel: set.Name}); err != nil {
		return ready, fmt.Errorf("list the Pods that serve the files of Server %s: %w", set.Key(), err)
	}
	files, err := p.noteUse(ctx, set, list.Items)
	if err != nil {
		return ready, err
	}
	game, err := p.game(ctx, set)
	if err != nil {
		return ready, err
	}
	shared, err := p.sharing(ctx, set)
	if err != nil {
		return ready, err
	}
	had := p.roomOf(set, files, game)
	if !had.shut(game, shared, p.Now()) {
		holder, err := p.openGates(ctx, set, list.Items)
		if err != nil {
			return ready, err
		}
		if holder != "" {
			ready = copied(holder, set.Name)
		}
	}
	if d.Status.ReadyReplicas == 0 {
		p.again.AtMost(startLook)
	}
	if game == nil {
		return ready, nil
	}
	e := planEnding(files, game, shared, had)
	if e.why != "" {
		p.again.AtMost(startLook)
		p.notices = append(p.notices, kit.Warning("FilesClosed", "MakeRoom", "%s", e.why))
		return ready, p.end(ctx, set, d, e)
	}
	if waits(files, game, shared) && d.Status.ReadyReplicas == 0 {
		return problem(reasons.DiskInUse, "The game has the disks of Server %s, which only one Pod may have (ReadWriteOncePod): its files are served while it is stopped or asleep.", set.Name), nil
	}
	return ready, nil
}

// noteUse notes on the disks that a Pod may write to them, once for each Pod that has passed its gate.
func (p *pass) noteUse(ctx context.Context, set *disks.Set, pods []corev1.Pod) ([]filePod, error) {
	var files []filePod
	var last *corev1.Pod
	for i := range pods {
		pod := &pods[i]
		f := filePodOf(pod)
		files = append(files, f)
		if f.gated {
			continue
		}
		if last == nil || last.CreationTimestamp.Before(&pod.CreationTimestamp) {
			last = pod
		}
	}
	if last == nil || p.noted(set.Key()) == last.UID {
		return files, nil
	}
	if err := disks.MarkUsed(ctx, p.Live, p.Client, set.Namespace, set.Name, set.Spec.Storage, last.CreationTimestamp.Time); err != nil {
		return files, err
	}
	p.setUp(set.Key(), last.UID, true)
	return files, nil
}

// claim is the claim of a disk; nil: there is none.
func (p *pass) claim(ctx context.Context, set *disks.Set, disk string) (*corev1.PersistentVolumeClaim, error) {
	claim := &corev1.PersistentVolumeClaim{}
	key := client.ObjectKey{Namespace: set.Namespace, Name: disks.ClaimName(set.Name, disk)}
	if err := p.Live.Get(ctx, key, claim); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, nil //nolint:nilnil // there is none
		}
		return nil, fmt.Errorf("read PersistentVolumeClaim %s: %w", key, err)
	}
	return claim, nil
}

// sharing is how that one of the disks is shared that is shared least. While no Pod is to be there it is
// as it was when one was. A pass asks the API server once.
func (p *pass) sharing(ctx context.Context, set *disks.Set) (disks.Sharing, error) {
	if shared, ok := p.shared[set.Name]; ok {
		return shared, nil
	}
	d := p.deploymentOf(set)
	if d == nil || ptr.Deref(d.Spec.Replicas, 1) > 0 {
		shared, err := disks.ReadSharing(ctx, p.Live, set)
		if err == nil {
			p.shared[set.Name] = shared
		}
		return shared, err //nolint:wrapcheck // it says of which disk
	}
	is := d.Spec.Template.Spec.Affinity
	if is != nil && is.PodAffinity != nil && len(is.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) == 0 {
		return disks.SharedByAll, nil
	}
	return disks.SharedByNode, nil
}

// game is the Pod of the Server's game; nil where none runs or is to run.
func (p *pass) game(ctx context.Context, set *disks.Set) (*gamePod, error) {
	pod := &corev1.Pod{}
	if err := p.Client.Get(ctx, set.Key(), pod); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, nil //nolint:nilnil // there is none
		}
		return nil, fmt.Errorf("read Pod %s: %w", set.Key(), err)
	}
	if disks.Over(pod) || !pod.DeletionTimestamp.IsZero() || pod.Labels[wellknown.ServerLabel] != set.Name {
		return nil, nil //nolint:nilnil // there is none
	}
	g := &gamePod{uid: pod.UID, node: pod.Spec.NodeName}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			g.unschedulable = true
		}
	}
	return g, nil
}

// end does what the plan says.
func (p *pass) end(ctx context.Context, set *disks.Set, d *appsv1.Deployment, e ending) error {
	if e.sleep {
		scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name, UID: d.UID, ResourceVersion: d.ResourceVersion}}
		if err := p.Client.SubResource("scale").Update(ctx, d.DeepCopy(), client.WithSubResourceBody(scale)); err != nil {
			return fmt.Errorf("scale Deployment %s/%s to zero: %w", d.Namespace, d.Name, client.IgnoreNotFound(err))
		}
	}
	var errs []error
	for _, f := range e.pods {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: set.Namespace, Name: f.name}}
		err := p.Client.Delete(ctx, pod, client.GracePeriodSeconds(endGrace), client.Preconditions{UID: &f.uid})
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("delete Pod %s/%s: %w", set.Namespace, f.name, err))
		}
	}
	return errors.Join(errs...)
}
