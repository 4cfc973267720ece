package serverfiles

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/disks"
)

// free lets everybody have the disks.
type free struct{}

func (free) StartFiles(types.NamespacedName, time.Time) (end func(), holder string) {
	return func() {}, ""
}

// reads counts how often a claim is read.
type reads struct {
	client.Reader
	claims int
}

func (r *reads) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, ok := o.(*corev1.PersistentVolumeClaim); ok {
		r.claims++
	}
	return r.Reader.Get(ctx, key, o, opts...)
}

// keeping is a pass for a Server in a cluster that has some objects.
func keeping(t *testing.T, s *v1alpha1.Server, have objects, there ...client.Object) (*pass, *reads) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(there...).Build()
	live := &reads{Reader: c}
	r := &Reconciler{Client: c, Live: live, Disks: free{}, SidecarTemplate: types.NamespacedName{Namespace: "dormouse-system", Name: "sidecar"}}
	r.Init()
	return &pass{Reconciler: r, owner: ownerOf(s), have: have, shared: map[string]disks.Sharing{}}, live
}

func sidecarThere() *corev1.PodTemplate {
	sidecar := newSidecar()
	sidecar.Namespace, sidecar.Name = "dormouse-system", "sidecar"
	return sidecar
}

// The Deployment may be there since the Server's storage was another, or an earlier version made it.
func TestNoGateOpensToAnothersDisk(t *testing.T) {
	set := ownerOf(newServer()).sets[0]
	d := &appsv1.Deployment{ObjectMeta: objectMeta(set)}
	d.Spec.Replicas = new(int32(1))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "f", Labels: map[string]string{wellknown.FilesLabel: "survival"}}}
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: wellknown.FilesGate}}
	for _, c := range []struct {
		of    string
		gates int
	}{{"surv", 1}, {"survival", 0}} {
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "survival-world", Labels: disks.Labels(c.of, nil)}}
		p, _ := keeping(t, newServer(), objects{deployments: []appsv1.Deployment{*d}}, d.DeepCopy(), claim, pod.DeepCopy(), sidecarThere())
		if err := p.keep(t.Context(), p.sets[0]); err != nil {
			t.Fatal(err)
		}
		got := &corev1.Pod{}
		if err := p.Live.Get(t.Context(), client.ObjectKeyFromObject(pod), got); err != nil || len(got.Spec.SchedulingGates) != c.gates {
			t.Errorf("with the disk of Server %s the Pod has the gates %v (%v)", c.of, got.Spec.SchedulingGates, err)
		}
		if reason := p.served[0].ready.Reason; (reason == reasons.NameTaken) != (c.gates > 0) {
			t.Errorf("of the disk of Server %s it says %s", c.of, reason)
		}
	}
}

// What is put on such a disk would be moved aside. It is so without a PodTemplate, too.
func TestNoGateOpensBeforeADiskIsFilled(t *testing.T) {
	for name, c := range map[string]struct {
		from    string
		sidecar bool
		gates   int
		reason  string
	}{
		"not filled":                  {"", true, 1, reasons.DisksBusy},
		"not filled, without sidecar": {"", false, 1, reasons.NoSidecar},
		"filled, without sidecar":     {"backup/old-1", false, 0, reasons.NoSidecar},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer()
			s.Spec.Storage[0].From = &v1alpha1.DiskSource{}
			set := ownerOf(s).sets[0]
			d := &appsv1.Deployment{ObjectMeta: objectMeta(set)}
			d.Spec.Replicas = new(int32(1))
			claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{
				Namespace: "games", Name: "survival-world", Annotations: map[string]string{wellknown.FilledAnnotation: c.from},
			}}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "f", Labels: map[string]string{wellknown.FilesLabel: "survival"}}}
			pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: wellknown.FilesGate}}
			there := []client.Object{d, claim, pod}
			if c.sidecar {
				there = append(there, sidecarThere())
			}
			p, _ := keeping(t, s, objects{deployments: []appsv1.Deployment{*d}}, there...)
			if err := p.keep(t.Context(), p.sets[0]); err != nil {
				t.Fatal(err)
			}
			if err := p.Live.Get(t.Context(), client.ObjectKeyFromObject(pod), pod); err != nil || len(pod.Spec.SchedulingGates) != c.gates {
				t.Errorf("the Pod has the gates %v (%v)", pod.Spec.SchedulingGates, err)
			}
			if got := p.served[0].ready.Reason; got != c.reason || p.again.Duration() > fillLook {
				t.Errorf("it says %s, and looks again after %s", got, p.again.Duration())
			}
		})
	}
}

// A disk nether of a Server mc-world would be the disk world-nether of a Server mc, with all that is on it.
func TestAnotherServersFilesAreNotServed(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "survival-world", Labels: disks.Labels("surv", nil)}}
	p, _ := keeping(t, newServer(), objects{}, claim, sidecarThere())
	if err := p.keep(t.Context(), p.sets[0]); err != nil {
		t.Fatal(err)
	}
	if got := p.served[0].ready; got.Reason != reasons.NameTaken || !strings.Contains(got.Message, "is a disk of Server surv:") {
		t.Errorf("it says %s, %q", got.Reason, got.Message)
	}
	if err := p.Live.Get(t.Context(), client.ObjectKey{Namespace: "games", Name: "survival-files"}, &appsv1.Deployment{}); !apierrors.IsNotFound(err) {
		t.Errorf("what would serve them is there: %v", err)
	}
}

// A pass comes again and again until somebody mends it.
func TestNoDiskIsReadWhereNothingCanBeMade(t *testing.T) {
	others := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "survival-files"}}
	empty := sidecarThere()
	empty.Template.Spec.Containers = nil
	for name, c := range map[string]struct {
		there  []client.Object
		reason string
	}{
		"no PodTemplate":             {nil, reasons.NoSidecar},
		"one without a container":    {[]client.Object{empty}, reasons.NoSidecar},
		"somebody else's has a name": {[]client.Object{sidecarThere(), others}, reasons.NameTaken},
	} {
		p, live := keeping(t, newServer(), objects{}, c.there...)
		if err := p.keep(t.Context(), p.sets[0]); err != nil {
			t.Fatal(err)
		}
		if got := p.served[0].ready.Reason; got != c.reason || live.claims > 0 {
			t.Errorf("%s: it says %s, want %s, and has read %d claims", name, got, c.reason, live.claims)
		}
	}
}

// The objects and the room for the game go by the same answer.
func TestAPassAsksOnceHowADiskIsShared(t *testing.T) {
	s := newServer()
	set := ownerOf(s).sets[0]
	d := &appsv1.Deployment{ObjectMeta: objectMeta(set)}
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "survival-world"}}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	p, live := keeping(t, s, objects{deployments: []appsv1.Deployment{*d}}, claim)
	for range 2 {
		if shared, err := p.sharing(t.Context(), set); err != nil || shared != disks.SharedByAll || live.claims != 1 {
			t.Errorf("it is shared by %v (%v), and %d claims were read", shared, err, live.claims)
		}
	}
}
