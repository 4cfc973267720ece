package files_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/api/fixture"
)

// pod makes a Pod of a Server, as a controller, the scheduler and kubelet do.
func (w *world) pod(podName, node string, labels map[string]string) *corev1.Pod {
	w.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: podName, Labels: labels},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: new(false), TerminationGracePeriodSeconds: new(int64(30)),
			Containers: []corev1.Container{{Name: "c", Image: "c:1"}},
		},
	}
	w.create(p)
	return p
}

func (w *world) filePod(node string) *corev1.Pod {
	return w.pod("files-"+node, node, map[string]string{wellknown.FilesLabel: name, wellknown.DisksLabel: name})
}

func (w *world) gamePod(node string) {
	w.t.Helper()
	w.pod(name, node, map[string]string{wellknown.ServerLabel: name, wellknown.DisksLabel: name})
}

func (w *world) ends(podName string) bool {
	w.t.Helper()
	p := &corev1.Pod{}
	return !w.there(podName, p) || !p.DeletionTimestamp.IsZero()
}

func TestTheUseIsNotedOnTheDisks(t *testing.T) {
	w := newWorld(t)
	w.server(nil)
	used := func() string {
		claim := &corev1.PersistentVolumeClaim{}
		w.get(name+"-world", claim)
		return claim.Annotations[wellknown.UsedAtAnnotation]
	}
	w.scale(name, 1)
	w.settled()
	if at := used(); at != "" {
		t.Errorf("before there is a Pod it was used at %s", at)
	}
	p := w.filePod("a")
	w.eventually("the use is noted", func() error {
		if at := used(); at != p.CreationTimestamp.UTC().Format(time.RFC3339) {
			return fmt.Errorf("it was used at %q, the Pod was made at %s", at, p.CreationTimestamp)
		}
		return nil
	})
	w.Writes.Take()
	if did := w.settled(); len(did) > 0 {
		t.Errorf("after that it wrote %v", did)
	}
}

func TestFilesOnAnotherNodeMakeRoomForTheGame(t *testing.T) {
	w := newWorld(t)
	w.server(nil)
	status(w, &v1alpha1.ElasticService{}, name+"-files", ready)
	w.scale(name, 1)
	w.filePod("a")
	w.settled()
	w.gamePod("b")
	w.eventually("the files' Pod ends", func() error {
		if !w.ends("files-a") {
			return errors.New("it is there")
		}
		return nil
	})
	w.settled()
	if p := (&corev1.Pod{}); w.there("files-a", p) && *p.DeletionGracePeriodSeconds > 1 {
		t.Errorf("the game waits for %d s", *p.DeletionGracePeriodSeconds)
	}
	if w.ends(name) || w.replicas(name) != 1 || w.Emitted("FilesClosed") == 0 {
		t.Error("the game's Pod ends, or the files are asleep, or nobody is told")
	}
	w.filePod("b")
	w.settled()
	if w.ends("files-b") {
		t.Error("the Pod on the game's node ends, too")
	}
}

func (w *world) claim(mode corev1.PersistentVolumeAccessMode) {
	w.t.Helper()
	fixture.Claim(w.t, w.Admin, client.ObjectKey{Namespace: w.Namespace, Name: name + "-world"}, mode)
}

func TestFilesSleepWhereTheGameFindsNoNode(t *testing.T) {
	w := newWorld(t)
	w.claim(corev1.ReadWriteOncePod)
	w.server(nil)
	status(w, &v1alpha1.ElasticService{}, name+"-files", ready)
	w.scale(name, 1)
	w.filePod("a")
	w.gamePod("")
	w.settled()
	if w.ends("files-a") {
		t.Fatal("the files' Pod ends before the scheduler has looked at the game's")
	}
	status(w, &corev1.Pod{}, name, func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
	})
	if !w.ends("files-a") || w.replicas(name) != 0 || w.ends(name) || w.Emitted("FilesClosed") != 1 {
		t.Errorf("the files' Pod ends: %t, the Deployment has %d replicas", w.ends("files-a"), w.replicas(name))
	}
	// Then the game is up, and somebody connects.
	game := &corev1.Pod{}
	w.get(name, game)
	if err := w.Admin.Delete(t.Context(), game); err != nil {
		t.Fatal(err)
	}
	w.gamePod("a")
	w.scale(name, 1)
	w.pod("files-pending", "", map[string]string{wellknown.FilesLabel: name, wellknown.DisksLabel: name})
	w.settled()
	w.wantCondition(metav1.ConditionFalse, reasons.DiskInUse, "which only one Pod may have")
	if w.ends("files-pending") || w.replicas(name) != 1 {
		t.Error("a Pod that has no disk ends")
	}
}
