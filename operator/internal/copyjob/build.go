package copyjob

import (
	"maps"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/disks"
)

// ManagedByLabel is on all of the Jobs and their Pods, with the value wellknown.ManagedBy.
const ManagedByLabel = "app.kubernetes.io/managed-by"

// Where a Job's Pod has what isn't the Server's own disks.
const (
	// SourcePath has the disks that are only read, each in a directory of its name.
	SourcePath = "/source"
	// claimPath has the disk for copies.
	claimPath = "/backups"
	// authorityPath has the certificate of the bucket's authority, where its Secret has one.
	authorityPath = "/bucket-ca"
)

const (
	// keptFor is how long a Job stays that has ended, if whoever made it doesn't delete it.
	keptFor = 6 * time.Hour
	// retries is how often a copy is tried again.
	retries = 2
	// exitFatal is the exit code of a fault that another try can't mend.
	exitFatal = 2
)

// Options are what a Job is built from.
type Options struct {
	// Namespace and Name are the Job's; Name has at most 63 characters.
	Namespace, Name string
	// Labels are the Job's and its Pods', beside those that all have.
	Labels map[string]string
	// Owner is what the Job belongs to.
	Owner metav1.OwnerReference
	// Set has the disks that are mounted. One with no storage in its spec gives the Pod the game's
	// user and group, and no disk.
	Set *disks.Set
	// Template is the sidecar's.
	Template *corev1.PodTemplate
	// Args are the program's.
	Args []string
	// Target is where copies are; nil: the program needs none.
	Target *v1alpha1.BackupTarget
	// Source are the claims that are only read, by the names of the disks that they stand for.
	Source map[string]string
	// ReadOnly mounts the disks of Set so that nothing can change them.
	ReadOnly bool
	// Timeout bounds all tries together; 0: an hour.
	Timeout time.Duration
}

// Build builds a Job.
func Build(o Options) *batchv1.Job {
	labels := map[string]string{}
	maps.Copy(labels, o.Labels)
	labels[ManagedByLabel] = wellknown.ManagedBy
	if o.Timeout <= 0 {
		o.Timeout = time.Hour
	}
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: o.Name, Labels: labels, OwnerReferences: []metav1.OwnerReference{o.Owner},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit:            new(int32(retries)),
			ActiveDeadlineSeconds:   new(int64(o.Timeout / time.Second)),
			TTLSecondsAfterFinished: new(int32(keptFor / time.Second)),
			// Never two at once: the next one begins when the one before has ended.
			PodReplacementPolicy: new(batchv1.Failed),
			PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{
				{
					Action:      batchv1.PodFailurePolicyActionFailJob,
					OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{exitFatal}},
				},
				{ // A drained node is no fault of the copy's.
					Action:          batchv1.PodFailurePolicyActionIgnore,
					OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}},
				},
			}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(labels)}, Spec: podSpec(o)},
		},
	}
	if len(o.Set.Spec.Storage) > 0 {
		job.Spec.Template.Labels[wellknown.DisksLabel] = o.Set.Name
	}
	return job
}

// podSpec builds the spec of the Job's Pods.
func podSpec(o Options) corev1.PodSpec {
	spec := disks.Beside(o.Set, o.Template, o.Args...)
	spec.RestartPolicy = corev1.RestartPolicyNever
	if len(o.Set.Spec.Storage) == 0 {
		spec.Affinity = nil // it may run anywhere
	}
	// Else each Pod would go through all files of a disk first.
	spec.SecurityContext.FSGroupChangePolicy = new(corev1.FSGroupChangeOnRootMismatch)
	c := &spec.Containers[0]
	// A fault of the program itself leaves no report, but says something.
	c.TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	c.Ports, c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.Lifecycle, c.EnvFrom = nil, nil, nil, nil, nil, nil
	c.Resources = resources(&c.Resources)
	if o.ReadOnly {
		for i := range c.VolumeMounts {
			c.VolumeMounts[i].ReadOnly = true
		}
	}
	mount := func(name, path string, readOnly bool, source corev1.VolumeSource) {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: source})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: readOnly})
	}
	for i, disk := range slices.Sorted(maps.Keys(o.Source)) {
		mount("source-"+strconv.Itoa(i), SourcePath+"/"+disk, true, corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: o.Source[disk]},
		})
	}
	if o.Target == nil {
		return spec
	}
	if claim := o.Target.Claim; claim != nil {
		mount("backups", claimPath, false, corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
		})
	}
	if bucket := o.Target.Bucket; bucket != nil {
		c.Env = append(c.Env, fromSecret("S3_ACCESS_KEY_ID", bucket.Secret, "accessKeyID"), fromSecret("S3_SECRET_ACCESS_KEY", bucket.Secret, "secretAccessKey"))
		mount("bucket-ca", authorityPath, true, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: bucket.Secret, Optional: new(true), Items: []corev1.KeyToPath{{Key: authorityFile, Path: authorityFile}},
		}})
	}
	return spec
}

// resources are a Job's: the sidecar's, which has what the cluster's quotas ask for, with a memory of its own. It
// works where a sidecar mostly waits, so it asks for more of the processor, as far as its limit lets it.
func resources(sidecar *corev1.ResourceRequirements) corev1.ResourceRequirements {
	r := *sidecar.DeepCopy()
	if r.Requests == nil {
		r.Requests = corev1.ResourceList{}
	}
	if r.Limits == nil {
		r.Limits = corev1.ResourceList{}
	}
	cpu := resource.MustParse("50m")
	if limit, ok := r.Limits[corev1.ResourceCPU]; ok && limit.Cmp(cpu) < 0 {
		cpu = limit
	}
	if r.Requests.Cpu().Cmp(cpu) < 0 {
		r.Requests[corev1.ResourceCPU] = cpu
	}
	r.Requests[corev1.ResourceMemory] = resource.MustParse("64Mi")
	// zstd's windows, and a few parts of 16 MiB of an upload at once.
	r.Limits[corev1.ResourceMemory] = resource.MustParse("256Mi")
	return r
}

func fromSecret(env, secret, key string) corev1.EnvVar {
	return corev1.EnvVar{Name: env, ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: secret}, Key: key,
	}}}
}

// Name is the name of a Job, and the value of a label, for an object whose name may be longer than
// those may be: prefix and name, or the beginning of that with a hash of all.
func Name(prefix, name string) string { return disks.ShortName(prefix + name) }
