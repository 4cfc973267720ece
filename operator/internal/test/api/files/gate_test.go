package files_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/disks"
)

// gatedPod is as the Deployment's are made.
func (w *world) gatedPod(podName string, gates ...string) *corev1.Pod {
	w.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: podName, Labels: map[string]string{wellknown.FilesLabel: name, wellknown.DisksLabel: name}},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "c", Image: "c:1"}}},
	}
	for _, gate := range append(gates, wellknown.FilesGate) {
		p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
	}
	w.create(p)
	return p
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
