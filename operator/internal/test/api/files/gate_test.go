package files_test

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/disks"
)

// gatedPod is as the Deployment's are made.
func (w *world) gatedPod(podName string, gates ...string) {
	w.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: podName, Labels: map[string]string{wellknown.FilesLabel: name, wellknown.DisksLabel: name}},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "c", Image: "c:1"}}},
	}
	for _, gate := range append(gates, wellknown.FilesGate) {
		p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
	}
	w.create(p)
}

func (w *world) gates(podName string) []corev1.PodSchedulingGate {
	w.t.Helper()
	p := &corev1.Pod{}
	w.get(podName, p)
	return p.Spec.SchedulingGates
}

func TestFilesWaitAtTheirGateForACopy(t *testing.T) {
	w := newWorld(t)
	s := w.server(nil)
	status(w, &v1alpha1.ElasticService{}, name+"-files", ready)
	w.scale(name, 1)
	set := disks.OfServer(s)
	if !w.table.Hold(set.Key(), "Backup survival-1") {
		t.Fatal("the disks aren't free")
	}
	w.gatedPod("files-a", "a-tenant/queue")
	w.settled()
	w.wantCondition(metav1.ConditionUnknown, reasons.DisksBusy, "Backup survival-1 goes first")
	claim := &corev1.PersistentVolumeClaim{}
	w.get(name+"-world", claim)
	if at := claim.Annotations[wellknown.UsedAtAnnotation]; at != "" || len(w.gates("files-a")) != 2 {
		t.Fatalf("while a copy has the disks they were used at %q, and the Pod has %v", at, w.gates("files-a"))
	}
	w.Clock.Pass(time.Hour)
	w.table.Release(set.Key(), "Backup survival-1")
	w.settled()
	w.wantCondition(metav1.ConditionTrue, reasons.OK, "SFTP")
	w.get(name+"-world", claim)
	if at := claim.Annotations[wellknown.UsedAtAnnotation]; at != w.Clock.Now().UTC().Format(time.RFC3339) {
		t.Errorf("the disks were used at %q, and the Pod was let in at %s", at, w.Clock.Now())
	}
	if left := w.gates("files-a"); len(left) != 1 || left[0].Name != "a-tenant/queue" {
		t.Errorf("the Pod has the gates %v", left)
	}
}

// Somebody deleted a disk that begins with another's, and connects while the new one is still empty.
func TestFilesWaitAtTheirGateForWhatADiskBeginsWith(t *testing.T) {
	w := newWorld(t)
	s := w.server(nil)
	status(w, &v1alpha1.ElasticService{}, name+"-files", ready)
	claim := &corev1.PersistentVolumeClaim{}
	w.get(name+"-world", claim)
	claim.Finalizers = nil
	if err := w.Admin.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	if err := w.Admin.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	change(w, s, name, func(s *v1alpha1.Server) { s.Spec.Storage[0].From = &v1alpha1.DiskSource{Server: "other"} })
	w.scale(name, 1)
	w.gatedPod("files-a")
	w.settled()
	w.wantCondition(metav1.ConditionUnknown, reasons.DisksBusy, "doesn't have yet what it begins with")
	if len(w.gates("files-a")) != 1 {
		t.Error("the Pod gets a disk that is to be filled")
	}
}

// A claim that all nodes may mount binds no Pod to the game's.
func TestFilesOfADiskOfAllNodesMayBeAnywhere(t *testing.T) {
	w := newWorld(t)
	w.claim(corev1.ReadWriteMany)
	w.server(nil)
	bound := func() bool {
		d := &appsv1.Deployment{}
		w.get(name+"-files", d)
		return len(d.Spec.Template.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0
	}
	if bound() {
		t.Error("its Pods must be on the node of others")
	}
	// It stays so while they sleep, and is looked at again when somebody connects.
	claim := &corev1.PersistentVolumeClaim{}
	w.get(name+"-world", claim)
	claim.Finalizers = nil
	if err := w.Admin.Update(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	if err := w.Admin.Delete(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	w.claim(corev1.ReadWriteOnce)
	change(w, &v1alpha1.Server{}, name, func(s *v1alpha1.Server) { s.Spec.Files.IdleTimeout = &metav1.Duration{Duration: time.Hour} })
	if bound() {
		t.Error("a change looks at the disk though nobody has it")
	}
	w.scale(name, 1)
	if w.settled(); !bound() {
		t.Error("its Pods may be anywhere, and the disk may not")
	}
}

// A game that waits for a larger node keeps nobody from its files.
func TestFilesOfAGameThatFindsNoNodeAnyway(t *testing.T) {
	w := newWorld(t)
	w.server(nil)
	status(w, &v1alpha1.ElasticService{}, name+"-files", ready)
	w.scale(name, 1)
	w.filePod("a")
	w.gamePod("")
	status(w, &corev1.Pod{}, name, func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	})
	if !w.ends("files-a") || w.replicas(name) != 0 {
		t.Fatal("the files don't make room")
	}
	if err := w.Admin.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "files-a"}}, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	w.scale(name, 1)
	w.gatedPod("files-b")
	w.settled()
	if len(w.gates("files-b")) != 1 {
		t.Error("the scheduler has no time to try without the files")
	}
	w.Clock.Pass(time.Minute)
	if w.settled(); len(w.gates("files-b")) != 0 {
		t.Error("the files aren't served")
	}
	node := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "files-b"}, Target: corev1.ObjectReference{Kind: "Node", Name: "a"}}
	if err := w.Admin.SubResource("binding").Create(t.Context(), &corev1.Pod{ObjectMeta: node.ObjectMeta}, node); err != nil {
		t.Fatal(err)
	}
	if w.settled(); w.ends("files-b") || w.replicas(name) != 1 {
		t.Error("the files end once more")
	}
}
