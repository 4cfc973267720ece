package copyjob

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/disks"
)

func template() *corev1.PodTemplate {
	return &corev1.PodTemplate{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{
		Name: "dormouse-sidecar", Image: "sidecar:v1", Command: []string{"/sidecar"},
		SecurityContext: &corev1.SecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), ReadOnlyRootFilesystem: new(true)},
	}}}}}
}

func set(storage ...string) *disks.Set {
	spec := &v1alpha1.ServerSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{RunAsUser: new(int64(1000)), RunAsGroup: new(int64(1001))},
		Containers:      []corev1.Container{{Name: "game", Image: "game"}},
	}}}
	for _, name := range storage {
		spec.Storage = append(spec.Storage, v1alpha1.StorageSpec{Name: name, MountPath: "/" + name})
	}
	return &disks.Set{Namespace: "games", Name: "survival-0", Spec: spec}
}

func bucket() *v1alpha1.BackupTarget {
	return &v1alpha1.BackupTarget{Bucket: &v1alpha1.BackupBucket{
		Endpoint: "https://s3.example.com", Name: "worlds", Region: "eu-1", Prefix: "mine/a b ", Secret: "keys",
	}}
}

func options(target *v1alpha1.BackupTarget, storage ...string) Options {
	return Options{
		Namespace: "games", Name: "backup-one", Labels: map[string]string{wellknown.BackupLabel: "one"}, Set: set(storage...),
		Owner:    metav1.OwnerReference{APIVersion: "dormouse.dev/v1alpha1", Kind: "Backup", Name: "one", UID: "u1", Controller: new(true)},
		Template: template(), Args: []string{"backup"}, Target: target, Timeout: 90 * time.Minute,
	}
}

// mounts are the Pod's mounts as path=source, with ! before those that can be written.
func mounts(job *batchv1.Job) []string {
	sources := map[string]string{}
	for _, v := range job.Spec.Template.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			sources[v.Name] = "claim " + v.PersistentVolumeClaim.ClaimName
		case v.Secret != nil:
			sources[v.Name] = "secret " + v.Secret.SecretName
		}
	}
	var all []string
	for _, m := range job.Spec.Template.Spec.Containers[0].VolumeMounts {
		word := m.MountPath + "=" + sources[m.Name]
		if !m.ReadOnly {
			word = "!" + word
		}
		all = append(all, word)
	}
	return all
}

func TestAJobMountsWhatItNeedsAndNothingElse(t *testing.T) {
	for name, c := range map[string]struct {
		options Options
		want    []string
	}{
		"to a claim": {
			options(&v1alpha1.BackupTarget{Claim: &v1alpha1.BackupClaim{Name: "nas"}}, "world", "mods"),
			[]string{"!/disks/world=claim survival-0-world", "!/disks/mods=claim survival-0-mods", "!/backups=claim nas"},
		},
		"to a bucket, which only reads": {
			func() Options { o := options(bucket(), "world"); o.ReadOnly = true; return o }(),
			[]string{"/disks/world=claim survival-0-world", "/bucket-ca=secret keys"},
		},
		"from other claims": {
			func() Options {
				o := options(nil, "world")
				o.Source = map[string]string{"world": "other-world", "mods": "other-mods"}
				return o
			}(),
			[]string{"!/disks/world=claim survival-0-world", "/source/mods=claim other-mods", "/source/world=claim other-world"},
		},
		"without disks": {options(bucket()), []string{"/bucket-ca=secret keys"}},
	} {
		if diff := cmp.Diff(c.want, mounts(Build(c.options))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestAJobIsBounded(t *testing.T) {
	job := Build(options(bucket(), "world"))
	s, pod := &job.Spec, &job.Spec.Template.Spec
	if *s.BackoffLimit != 2 || *s.ActiveDeadlineSeconds != 5400 || *s.TTLSecondsAfterFinished < 3600 || *s.PodReplacementPolicy != batchv1.Failed {
		t.Errorf("its bounds are %+v", *s)
	}
	if pod.RestartPolicy != corev1.RestartPolicyNever || *pod.AutomountServiceAccountToken || *pod.EnableServiceLinks {
		t.Errorf("its Pod is restarted %s, and may have a token", pod.RestartPolicy)
	}
	rule := s.PodFailurePolicy.Rules[0]
	if rule.Action != batchv1.PodFailurePolicyActionFailJob || !slices.Equal(rule.OnExitCodes.Values, []int32{2}) {
		t.Errorf("after exit code 2: %+v", rule)
	}
	if limit := pod.Containers[0].Resources.Limits.Memory(); limit.Value() != 256<<20 {
		t.Errorf("it may use %s", limit)
	}
	if c := pod.Containers[0]; *c.SecurityContext.RunAsUser != 1000 || *c.SecurityContext.RunAsGroup != 1001 || !*c.SecurityContext.ReadOnlyRootFilesystem {
		t.Errorf("it runs as %+v", c.SecurityContext)
	}
	if got := Build(Options{Set: set(), Template: template()}); *got.Spec.ActiveDeadlineSeconds != 3600 {
		t.Errorf("without a timeout it may take %ds", *got.Spec.ActiveDeadlineSeconds)
	}
}

// A Pod with a Server's disks is found by its label, and goes where they are. One without them isn't
// among those that keep them from being at rest.
func TestOnlyAJobWithTheDisksSaysSo(t *testing.T) {
	with, without := Build(options(bucket(), "world")), Build(options(bucket()))
	if got := with.Spec.Template.Labels[wellknown.DisksLabel]; got != "survival-0" || with.Spec.Template.Spec.Affinity == nil {
		t.Errorf("the disks of %q, affinity %v", got, with.Spec.Template.Spec.Affinity)
	}
	if got, ok := without.Spec.Template.Labels[wellknown.DisksLabel]; ok || without.Spec.Template.Spec.Affinity != nil {
		t.Errorf("without disks it has those of %q, affinity %v", got, without.Spec.Template.Spec.Affinity)
	}
	for _, job := range []*batchv1.Job{with, without} {
		for _, labels := range []map[string]string{job.Labels, job.Spec.Template.Labels} {
			if labels[ManagedByLabel] != wellknown.ManagedBy || labels[wellknown.BackupLabel] != "one" {
				t.Errorf("it has the labels %v", labels)
			}
		}
	}
}

// The bucket's keys are the Secret's, and no value of theirs is in the Job.
func TestTheKeysComeFromTheSecret(t *testing.T) {
	job := Build(options(bucket()))
	want := map[string]string{"S3_ACCESS_KEY_ID": "accessKeyID", "S3_SECRET_ACCESS_KEY": "secretAccessKey"}
	got := map[string]string{}
	for _, e := range job.Spec.Template.Spec.Containers[0].Env {
		if e.Value != "" || e.ValueFrom.SecretKeyRef.Name != "keys" {
			t.Errorf("%s is %+v", e.Name, e)
		}
		got[e.Name] = e.ValueFrom.SecretKeyRef.Key
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("its keys (-want +got):\n%s", diff)
	}
}

func TestWhereAnArchiveIs(t *testing.T) {
	for _, c := range []struct {
		target *v1alpha1.BackupTarget
		url    string
		flags  []string
	}{
		{&v1alpha1.BackupTarget{Claim: &v1alpha1.BackupClaim{Name: "nas"}}, "file:///backups/survival-0/one-0d1f2a3b.tar.zst", nil},
		{bucket(), "s3://worlds/mine/a b games/survival-0/one-0d1f2a3b.tar.zst", []string{"--s3-endpoint=https://s3.example.com", "--s3-region=eu-1", "--s3-ca-file=/bucket-ca/ca.crt"}},
		{&v1alpha1.BackupTarget{VolumeSnapshot: &v1alpha1.BackupSnapshot{}}, "", nil},
	} {
		b := &v1alpha1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "one", UID: "0d1f2a3b-4c5d"}}
		b.Spec.Server, b.Status.To, b.Status.Archive = "survival-0", c.target, "survival-0/one-0d1f2a3b.tar.zst"
		if got := URL(b); got != c.url {
			t.Errorf("it is at %q, want %q", got, c.url)
		}
		if got := Archive(b); got != b.Status.Archive {
			t.Errorf("its path is to be %q, want %q", got, b.Status.Archive)
		}
		// An earlier version made it.
		b.Status.Archive = ""
		if got, want := URL(b), strings.Replace(c.url, "-0d1f2a3b", "", 1); got != want {
			t.Errorf("it is at %q, want %q", got, want)
		}
		if got := Flags(c.target); !slices.Equal(got, c.flags) {
			t.Errorf("its flags are %q, want %q", got, c.flags)
		}
	}
}

// A quota on what a PodTemplate says, such as a limit of the processor, is met by copies, too. Their memory is
// their own, and they ask for more of the processor, where they may.
func TestACopyHasTheSidecarsResourcesAndItsOwnMemory(t *testing.T) {
	list := func(of ...string) corev1.ResourceList {
		all := corev1.ResourceList{}
		for i := 0; i < len(of); i += 2 {
			all[corev1.ResourceName(of[i])] = resource.MustParse(of[i+1])
		}
		return all
	}
	for name, c := range map[string]struct{ sidecar, want corev1.ResourceRequirements }{
		"nothing is said": {
			corev1.ResourceRequirements{},
			corev1.ResourceRequirements{Requests: list("cpu", "50m", "memory", "64Mi"), Limits: list("memory", "256Mi")},
		},
		"a limit of the processor": {
			corev1.ResourceRequirements{
				Requests: list("cpu", "5m", "memory", "40Mi", "ephemeral-storage", "1Mi"), Limits: list("cpu", "1", "memory", "128Mi", "ephemeral-storage", "10Mi"),
			},
			corev1.ResourceRequirements{
				Requests: list("cpu", "50m", "memory", "64Mi", "ephemeral-storage", "1Mi"), Limits: list("cpu", "1", "memory", "256Mi", "ephemeral-storage", "10Mi"),
			},
		},
		"a low one": {
			corev1.ResourceRequirements{Requests: list("cpu", "5m"), Limits: list("cpu", "20m")},
			corev1.ResourceRequirements{Requests: list("cpu", "20m", "memory", "64Mi"), Limits: list("cpu", "20m", "memory", "256Mi")},
		},
		"more than a copy asks for": {
			corev1.ResourceRequirements{Requests: list("cpu", "2", "memory", "1Gi")},
			corev1.ResourceRequirements{Requests: list("cpu", "2", "memory", "64Mi"), Limits: list("memory", "256Mi")},
		},
	} {
		o := options(bucket(), "world")
		o.Template.Template.Spec.Containers[0].Resources = c.sidecar
		before := o.Template.DeepCopy()
		if diff := cmp.Diff(c.want, Build(o).Spec.Template.Spec.Containers[0].Resources); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(before, o.Template); diff != "" {
			t.Errorf("%s: the PodTemplate is changed (-before +after):\n%s", name, diff)
		}
	}
}

func TestALongNameIsCutAndStaysItsOwn(t *testing.T) {
	long := strings.Repeat("a", 52) + "." + strings.Repeat("b", 57)
	a, b := Name("backup-", long), Name("backup-", long+"c")
	if a == b || len(a) > 63 || len(b) > 63 || !strings.HasPrefix(a, "backup-aaa") {
		t.Errorf("%s and %s", a, b)
	}
	if got := Name("backup-", "survival-0-20261126040000"); got != "backup-survival-0-20261126040000" {
		t.Errorf("a short one becomes %s", got)
	}
}
