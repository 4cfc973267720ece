package restore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/copyjob"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/kit"
)

// Cluster is what the controllers here read and write.
type Cluster struct {
	// Client reads from the cache and writes to the API server.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// SidecarTemplate names the PodTemplate whose first container is the program that copies.
	SidecarTemplate types.NamespacedName
}

// lackError is something that somebody has to bring about.
type lackError struct{ sentence string }

func (e *lackError) Error() string { return e.sentence }

func lacks(format string, args ...any) error { return &lackError{fmt.Sprintf(format, args...)} }

// lackOf is what an error says that somebody has to bring about; empty: it is of another kind.
func lackOf(err error) string {
	var lack *lackError
	if errors.As(err, &lack) {
		return lack.sentence
	}
	return ""
}

// template reads what the program runs in.
func (c *Cluster) template(ctx context.Context) (*corev1.PodTemplate, error) {
	t, err := copyjob.ReadTemplate(ctx, c.Client, c.SidecarTemplate)
	if t == nil && err == nil {
		err = lacks("The PodTemplate %s, which says what copies, isn't there or has no container; apply config/sidecar.", c.SidecarTemplate)
	}
	return t, err //nolint:wrapcheck // it says which
}

// start makes a Job, unless it is there.
func (c *Cluster) start(ctx context.Context, o copyjob.Options) error {
	template, err := c.template(ctx)
	if err != nil {
		return err
	}
	if o.Set, err = disks.Placed(ctx, c.Live, o.Set); err != nil {
		return err //nolint:wrapcheck // it says of which disk
	}
	o.Template, o.Namespace = template, o.Set.Namespace
	if o.Set.Backup != nil && o.Set.Backup.Timeout != nil {
		o.Timeout = o.Set.Backup.Timeout.Duration
	}
	job := copyjob.Build(o)
	err = c.Client.Create(ctx, job)
	if !apierrors.IsAlreadyExists(err) {
		return kit.Wrapf(err, "create Job %s/%s", o.Namespace, o.Name)
	}
	found, err := c.job(ctx, o.Namespace, o.Name, o.Owner.UID)
	if found == nil && err == nil {
		err = apierrors.NewConflict(batchv1.Resource("jobs"), o.Name, errors.New("the one before it is about to be gone"))
	}
	return err
}

// job reads a Job, by the API server itself; nil: it isn't there. One of somebody else's is in the way.
func (c *Cluster) job(ctx context.Context, namespace, name string, owner types.UID) (*batchv1.Job, error) {
	job := &batchv1.Job{}
	err := c.Live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, job)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // there is none
	}
	if err != nil {
		return nil, fmt.Errorf("read Job %s/%s: %w", namespace, name, err)
	}
	if by := metav1.GetControllerOfNoCopy(job); by == nil || by.UID != owner {
		return nil, lacks("There is a Job named %s that is of something else: delete it.", name)
	}
	return job, nil
}

// end deletes a Job with its Pods. One that may make another Pod stays until all of its are gone.
func (c *Cluster) end(ctx context.Context, job *batchv1.Job) error {
	if job == nil || !job.DeletionTimestamp.IsZero() {
		return nil
	}
	policy := metav1.DeletePropagationForeground
	if copyjob.Ended(job) {
		policy = metav1.DeletePropagationBackground
	}
	err := c.Client.Delete(ctx, job, client.Preconditions{UID: &job.UID}, client.PropagationPolicy(policy))
	return kit.Wrapf(client.IgnoreNotFound(err), "delete Job %s", client.ObjectKeyFromObject(job))
}

// How long what the program knows a restoration by may be, and how much of the UID is in it.
const maxID, uidInID = 110, 8

// idOf is what the program knows a Restore by. A later Restore of the same name is another one: else
// the program would find that it has done it already.
func idOf(rst *v1alpha1.Restore) string {
	uid := string(rst.UID[:min(len(rst.UID), uidInID)])
	return strings.TrimRight(rst.Name[:min(len(rst.Name), maxID-1-uidInID)], "-.") + "-" + uid
}

// args are the program's, for some disks.
func args(command string, set *disks.Set, id string, more ...string) []string {
	all := []string{command}
	for i := range set.Spec.Storage {
		name := set.Spec.Storage[i].Name
		all = append(all, "--disk="+name+"="+disks.MountPath(name))
	}
	return append(append(all, "--id="+id), more...)
}

// fromBackup has a Job put the disks of set back from a Backup. Of snapshots it makes temporary
// claims, which are named like the Job and belong to its owner.
func (c *Cluster) fromBackup(ctx context.Context, o copyjob.Options, b *v1alpha1.Backup, id string) (copyjob.Options, error) {
	to := b.Status.To
	if to.VolumeSnapshot == nil {
		from := []string{"--from=" + copyjob.URL(b)}
		if b.Status.SHA256 != "" {
			from = append(from, "--sha256="+b.Status.SHA256)
		}
		o.Target, o.Args = to, args("restore", o.Set, id, append(from, copyjob.Flags(to)...)...)
		return o, nil
	}
	o.Source = map[string]string{}
	for i := range o.Set.Spec.Storage {
		disk := &o.Set.Spec.Storage[i]
		claim, err := c.snapshotClaim(ctx, &o, copyjob.SnapshotName(b.Name, disk.Name), disk)
		if err != nil {
			return o, err
		}
		o.Source[disk.Name] = claim
	}
	o.Args = args("restore", o.Set, id, "--from=dir:"+copyjob.SourcePath)
	return o, nil
}

// temporary is the name of the claim that a Job makes from a disk's snapshot.
func temporary(job, disk string) string { return job + "-" + disk }

// snapshotClaim makes the claim with what a snapshot has.
func (c *Cluster) snapshotClaim(ctx context.Context, o *copyjob.Options, snapshot string, disk *v1alpha1.StorageSpec) (string, error) {
	size := disk.Size.DeepCopy()
	found, err := c.snapshot(ctx, o.Set.Namespace, snapshot)
	if err != nil {
		return "", err
	}
	if text, ok, _ := unstructured.NestedString(found.Object, "status", "restoreSize"); ok {
		if needs, err := resource.ParseQuantity(text); err == nil && needs.Cmp(size) > 0 {
			size = needs
		}
	}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Set.Namespace, Name: temporary(o.Name, disk.Name), OwnerReferences: []metav1.OwnerReference{o.Owner},
			Labels: map[string]string{copyjob.ManagedByLabel: wellknown.ManagedBy},
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: disk.StorageClassName,
			Resources:  corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: size}},
			DataSource: &corev1.TypedLocalObjectReference{APIGroup: &copyjob.SnapshotKind.Group, Kind: copyjob.SnapshotKind.Kind, Name: snapshot},
		},
	}
	err = c.Client.Create(ctx, claim)
	if apierrors.IsAlreadyExists(err) {
		return claim.Name, c.same(ctx, client.ObjectKeyFromObject(claim), o.Owner.UID)
	}
	return claim.Name, kit.Wrapf(err, "create PersistentVolumeClaim %s", client.ObjectKeyFromObject(claim))
}

// same makes sure that a claim that is there already is the one that an earlier pass made for an owner.
func (c *Cluster) same(ctx context.Context, key types.NamespacedName, owner types.UID) error {
	claim := &corev1.PersistentVolumeClaim{}
	err := c.Live.Get(ctx, key, claim)
	if by := metav1.GetControllerOfNoCopy(claim); err == nil && (by == nil || by.UID != owner) && claim.DeletionTimestamp.IsZero() {
		return lacks("There is a PersistentVolumeClaim named %s that is of something else: delete it.", key.Name)
	}
	if apierrors.IsNotFound(err) || err == nil && !claim.DeletionTimestamp.IsZero() {
		return apierrors.NewConflict(corev1.Resource("persistentvolumeclaims"), key.Name, errors.New("the one before it is about to be gone"))
	}
	return kit.Wrapf(err, "read PersistentVolumeClaim %s", key)
}

// snapshot reads a snapshot, by the API server itself.
func (c *Cluster) snapshot(ctx context.Context, namespace, name string) (*unstructured.Unstructured, error) {
	found, err := copyjob.ReadSnapshot(ctx, c.Live, client.ObjectKey{Namespace: namespace, Name: name})
	switch {
	case meta.IsNoMatchError(err):
		return nil, lacks("The cluster doesn't serve %s, which VolumeSnapshot %s is of.", copyjob.SnapshotKind.GroupVersion(), name)
	case err == nil && found == nil:
		return nil, lacks("There is no VolumeSnapshot %s.", name)
	}
	return found, err //nolint:wrapcheck // it says which
}

// ready reports what lacks of what a Job would put back a Backup with.
func (c *Cluster) ready(ctx context.Context, set *disks.Set, b *v1alpha1.Backup) error {
	if _, err := c.template(ctx); err != nil {
		return err
	}
	if b.Status.To.VolumeSnapshot == nil {
		return nil
	}
	for i := range set.Spec.Storage {
		if _, err := c.snapshot(ctx, set.Namespace, copyjob.SnapshotName(b.Name, set.Spec.Storage[i].Name)); err != nil {
			return err
		}
	}
	return nil
}

// tidy deletes the temporary claims of a Job.
func (c *Cluster) tidy(ctx context.Context, namespace, job string, owner types.UID, names []string) error {
	for _, disk := range names {
		claim := &corev1.PersistentVolumeClaim{}
		key := client.ObjectKey{Namespace: namespace, Name: temporary(job, disk)}
		err := c.Live.Get(ctx, key, claim)
		if by := metav1.GetControllerOfNoCopy(claim); err == nil && by != nil && by.UID == owner && claim.DeletionTimestamp.IsZero() {
			err = c.Client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID})
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("delete PersistentVolumeClaim %s: %w", key, err)
		}
	}
	return nil
}

// filled notes on disks that began with nothing yet that they have what they begin with.
func (c *Cluster) filled(ctx context.Context, set *disks.Set, from string) error {
	for i := range set.Spec.Storage {
		claim := &corev1.PersistentVolumeClaim{}
		key := client.ObjectKey{Namespace: set.Namespace, Name: disks.ClaimName(set.Name, set.Spec.Storage[i].Name)}
		err := c.Live.Get(ctx, key, claim)
		if noted, ok := claim.Annotations[wellknown.FilledAnnotation]; err == nil && ok && noted == "" {
			err = disks.Annotate(ctx, c.Client, claim, wellknown.FilledAnnotation, from)
		}
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("note what PersistentVolumeClaim %s began with: %w", key, err)
		}
	}
	return nil
}

// When to look again at what is not watched: at Pods of Jobs that are about to end, and at all else.
const podRetry, otherRetry = 2 * time.Second, 15 * time.Second
