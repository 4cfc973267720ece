package files_test

import (
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/condition"
)

func ready(es *v1alpha1.ElasticService) {
	condition.SetAll(&es.Status.Conditions, es.Generation, metav1.Now(), condition.True(conditions.Ready, reasons.OK, "All is well."))
}

func TestAServersFilesAreServedBeforeItHasRun(t *testing.T) {
	w := newWorld(t)
	s := w.server(nil)
	w.wantAll(name, true)
	if n := w.replicas(name); n != 0 {
		t.Errorf("the Deployment has %d replicas, and nobody has connected", n)
	}
	service, es, claim := &corev1.Service{}, &v1alpha1.ElasticService{}, &corev1.PersistentVolumeClaim{}
	w.get(name+"-files", service)
	w.get(name+"-files", es)
	w.get(name+"-world", claim)
	if p := service.Spec.Ports; len(p) != 1 || p[0].Port != 22 || p[0].TargetPort.IntVal != 2022 || len(service.Spec.Selector) > 0 || service.Spec.Type != corev1.ServiceTypeClusterIP {
		t.Errorf("the Service is %+v", service.Spec)
	}
	if es.Spec.Handoff != v1alpha1.HandoffNever || es.Spec.ProxyProtocol == nil || !es.Spec.ProxyProtocol.Send || es.Spec.ScaleTargetRef.Kind != "Deployment" {
		t.Errorf("the ElasticService is %+v", es.Spec)
	}
	if claim.Labels[wellknown.ServerLabel] != name || claim.Labels[wellknown.DiskLabel] != "world" || claim.Annotations[wellknown.ServerUIDAnnotation] != string(s.UID) {
		t.Errorf("the disk is %+v", claim.ObjectMeta)
	}
	w.wantCondition(metav1.ConditionUnknown, reasons.Pending, "has said nothing yet")
	status(w, es, name+"-files", ready)
	w.wantCondition(metav1.ConditionTrue, reasons.OK, "SFTP on port 22 of Service survival-files.")
	status(w, es, name+"-files", func(es *v1alpha1.ElasticService) {
		condition.SetAll(&es.Status.Conditions, es.Generation, metav1.Now(), condition.False(conditions.Ready, reasons.ResolverNotListening, "Nobody listens."))
	})
	w.wantCondition(metav1.ConditionFalse, reasons.ResolverNotListening, "Nobody listens.")
}

// Other conditions are other controllers', and each writes them all.
func TestNobodysConditionIsLost(t *testing.T) {
	w := newWorld(t)
	w.server(nil)
	s := &v1alpha1.Server{}
	status(w, s, name, func(s *v1alpha1.Server) {
		condition.SetAll(&s.Status.Conditions, s.Generation, metav1.Now(), condition.False(conditions.Ready, reasons.Stopped, "Stopped."))
	})
	es := &v1alpha1.ElasticService{}
	status(w, es, name+"-files", ready)
	w.get(name, s)
	if reason := condition.ReasonOf(s.Status.Conditions, conditions.Ready); reason != reasons.Stopped {
		t.Errorf("Ready's reason is %q", reason)
	}
	w.wantCondition(metav1.ConditionTrue, reasons.OK, "")
	change(w, s, name, func(s *v1alpha1.Server) { s.Spec.Files = nil })
	w.get(name, s)
	if len(s.Status.Conditions) != 1 || s.Status.Conditions[0].Type != conditions.Ready {
		t.Errorf("without files it has %+v", s.Status.Conditions)
	}
}

func TestNothingIsWrittenWhereNothingChanged(t *testing.T) {
	w := newWorld(t)
	w.server(func(s *v1alpha1.Server) {
		s.Spec.Files.AllowCIDRs = []string{"203.0.113.0/24"}
		s.Spec.Files.Service = v1alpha1.FilesServiceSpec{Type: v1alpha1.GameServiceNodePort, Annotations: map[string]string{"a": "b"}, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal}
	})
	es, d, service := &v1alpha1.ElasticService{}, &appsv1.Deployment{}, &corev1.Service{}
	status(w, es, name+"-files", ready)
	w.Writes.Take()
	for what, did := range map[string]map[string]int{
		"applied again":            change(w, &v1alpha1.Server{}, name, func(s *v1alpha1.Server) { s.Labels = map[string]string{"applied": "again"} }),
		"the Deployment annotated": change(w, d, name+"-files", func(d *appsv1.Deployment) { d.Annotations["tool"] = "x"; d.Labels["tool"] = "x" }),
		"the Service annotated":    change(w, service, name+"-files", func(s *corev1.Service) { s.Annotations["tool"] = "x" }),
		"the ElasticService kept up": change(w, es, name+"-files", func(es *v1alpha1.ElasticService) {
			es.Annotations[wellknown.KeepAwakeUntilAnnotation] = "2026-11-27T18:00:00+01:00"
		}),
	} {
		if len(did) > 0 {
			t.Errorf("%s: it wrote %v", what, did)
		}
	}
	w.get(name+"-files", service)
	if service.Annotations["tool"] != "x" || service.Annotations["a"] != "b" {
		t.Errorf("the Service has the annotations %v", service.Annotations)
	}
}

func TestWhatSomebodyBreaksIsMended(t *testing.T) {
	w := newWorld(t)
	w.server(nil)
	service, d := &corev1.Service{}, &appsv1.Deployment{}
	change(w, service, name+"-files", func(s *corev1.Service) { s.Spec.Ports[0].Port = 2222 })
	change(w, d, name+"-files", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Args = []string{"files"} })
	w.get(name+"-files", service)
	w.get(name+"-files", d)
	if len(service.Spec.Ports) != 1 || service.Spec.Ports[0].Port != 22 || len(d.Spec.Template.Spec.Containers[0].Args) < 5 {
		t.Errorf("the ports are %+v, the arguments %v", service.Spec.Ports, d.Spec.Template.Spec.Containers[0].Args)
	}
}

// The Deployment is applied anew while an ElasticService scales it.
func TestAPassUndoesNoWake(t *testing.T) {
	w := newWorld(t)
	w.server(nil)
	quota := func(s *v1alpha1.Server) { s.Spec.Files.Quota = new(s.Spec.Storage[0].Size) }
	change(w, &v1alpha1.Server{}, name, quota)
	if n := w.replicas(name); n != 0 {
		t.Errorf("a change woke it: %d replicas", n)
	}
	w.scale(name, 1)
	w.settled()
	change(w, &v1alpha1.Server{}, name, func(s *v1alpha1.Server) { s.Spec.Files.Quota = nil })
	if n := w.replicas(name); n != 1 {
		t.Errorf("after a change while it is awake it has %d replicas", n)
	}
	w.scale(name, 0)
	w.settled()
	change(w, &v1alpha1.Server{}, name, quota)
	if n := w.replicas(name); n != 0 {
		t.Errorf("after a change while it is asleep it has %d replicas", n)
	}
}

// To change the Deployment ends its Pod, with all uploads.
func TestAnUpgradeWaitsUntilNobodyIsConnected(t *testing.T) {
	w := newWorld(t)
	w.server(nil)
	const earlier = "example.com/dormouse-sidecar:earlier"
	image := func() string {
		d := &appsv1.Deployment{}
		w.get(name+"-files", d)
		return d.Spec.Template.Spec.Containers[0].Image
	}
	current := image()
	for what, c := range map[string]struct {
		edit  func(*appsv1.Deployment)
		ready int32
		since time.Duration
		waits bool
	}{
		"a client is connected":            {func(*appsv1.Deployment) {}, 1, 23 * time.Hour, true},
		"somebody is connected for a day":  {func(*appsv1.Deployment) {}, 1, 24 * time.Hour, false},
		"an earlier version's Deployment":  {func(d *appsv1.Deployment) { delete(d.Annotations, wellknown.FilesAskedAnnotation) }, 1, 0, true},
		"its Pod doesn't start":            {func(*appsv1.Deployment) {}, 0, 0, false},
		"something else is asked for, too": {func(d *appsv1.Deployment) { d.Annotations[wellknown.FilesAskedAnnotation] = "other" }, 1, 0, false},
	} {
		w.scale(name, 1)
		status(w, &appsv1.Deployment{}, name+"-files", func(d *appsv1.Deployment) {
			d.Status.Replicas, d.Status.ReadyReplicas = 1, c.ready
			d.Status.Conditions = []appsv1.DeploymentCondition{{
				Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(w.Clock.Now().Add(-c.since)),
			}}
		})
		change(w, &appsv1.Deployment{}, name+"-files", func(d *appsv1.Deployment) {
			d.Annotations[wellknown.FilesHashAnnotation] = "earlier"
			d.Spec.Template.Spec.Containers[0].Image = earlier
			c.edit(d)
		})
		if waits := image() == earlier; waits != c.waits {
			t.Errorf("%s: the image is %s", what, image())
		}
		w.scale(name, 0)
		w.settled()
		if got := image(); got != current {
			t.Errorf("%s: asleep it has the image %s", what, got)
		}
	}
}

func TestWhatIsntAskedForAnyMoreGoes(t *testing.T) {
	w := newWorld(t)
	w.server(func(s *v1alpha1.Server) {
		s.Spec.Files.AllowCIDRs, s.Spec.Files.Quota = []string{"203.0.113.0/24"}, new(s.Spec.Storage[0].Size)
		s.Spec.Files.Service = v1alpha1.FilesServiceSpec{Type: v1alpha1.GameServiceNodePort, Annotations: map[string]string{"a": "b"}, ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal}
	})
	service, es, d := &corev1.Service{}, &v1alpha1.ElasticService{}, &appsv1.Deployment{}
	w.get(name+"-files", service)
	number := service.Spec.Ports[0].NodePort
	change(w, &v1alpha1.Server{}, name, func(s *v1alpha1.Server) { s.Spec.Files.Service.Annotations = nil })
	w.get(name+"-files", service)
	if _, there := service.Annotations["a"]; there || number == 0 || service.Spec.Ports[0].NodePort != number {
		t.Errorf("the annotations are %v, the port was %d and is %d", service.Annotations, number, service.Spec.Ports[0].NodePort)
	}
	change(w, &v1alpha1.Server{}, name, func(s *v1alpha1.Server) { s.Spec.Files = &v1alpha1.FilesSpec{Secret: "sftp"} })
	w.get(name+"-files", service)
	w.get(name+"-files", es)
	w.get(name+"-files", d)
	if service.Spec.Type != corev1.ServiceTypeClusterIP || service.Spec.Ports[0].NodePort != 0 || len(es.Spec.Wake.AllowCIDRs) > 0 ||
		strings.Contains(strings.Join(d.Spec.Template.Spec.Containers[0].Args, " "), "--allow") {
		t.Errorf("the Service is %+v, wake %+v, the arguments %v", service.Spec, es.Spec.Wake, d.Spec.Template.Spec.Containers[0].Args)
	}
}

func TestAGameTypesPlacesComeAndGo(t *testing.T) {
	w := newWorld(t)
	w.gameType = true
	gt := &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}
	gt.Spec.Replicas, gt.Spec.Files = new(int32(3)), &v1alpha1.FilesSpec{Secret: "sftp"}
	gt.Spec.Template.Spec = spec()
	gt.Spec.Template.Spec.Running = nil
	w.create(gt)
	w.settled()
	places := []string{name + "-0", name + "-1", name + "-2"}
	for _, place := range places {
		w.wantAll(place, true)
		status(w, &v1alpha1.ElasticService{}, place+"-files", ready)
	}
	w.wantCondition(metav1.ConditionTrue, reasons.OK, "survival-0-files, survival-1-files, survival-2-files")
	w.scale(places[0], 1)
	change(w, &v1alpha1.GameType{}, name, func(gt *v1alpha1.GameType) { gt.Spec.Replicas = new(int32(1)) })
	for i, place := range places {
		w.wantAll(place, i == 0)
	}
	if n := w.replicas(places[0]); n != 1 {
		t.Errorf("the place that stays has %d replicas", n)
	}
	change(w, &v1alpha1.GameType{}, name, func(gt *v1alpha1.GameType) { gt.Spec.Replicas = new(int32(0)) })
	w.wantAll(places[0], false)
	if c := w.condition(); c != nil {
		t.Errorf("without places it has %+v", c)
	}
	change(w, &v1alpha1.GameType{}, name, func(gt *v1alpha1.GameType) { gt.Spec.Replicas = new(int32(2)) })
	w.wantAll(places[1], true)
	did := change(w, &v1alpha1.GameType{}, name, func(gt *v1alpha1.GameType) { gt.Spec.Files = nil })
	for _, place := range places {
		w.wantAll(place, false)
		w.get(place+"-world", &corev1.PersistentVolumeClaim{})
	}
	if c := w.condition(); c != nil {
		t.Errorf("without files it has %+v; it wrote %v", c, did)
	}
}

// An ElasticService that is deleted wakes its target, if that and the Service are there.
func TestTheElasticServiceIsTheLastToGo(t *testing.T) {
	w := newWorld(t)
	w.server(nil)
	service := &corev1.Service{}
	w.get(name+"-files", service)
	before := service.DeepCopy()
	service.Finalizers = []string{"example.com/stay"}
	if err := w.Admin.Patch(t.Context(), service, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	change(w, &v1alpha1.Server{}, name, func(s *v1alpha1.Server) { s.Spec.Files = nil })
	es := &v1alpha1.ElasticService{}
	if w.there(name+"-files", &appsv1.Deployment{}) || !w.there(name+"-files", es) || !es.DeletionTimestamp.IsZero() {
		t.Error("the Deployment is there, or the ElasticService goes before the Service")
	}
	w.get(name+"-files", service)
	before = service.DeepCopy()
	service.Finalizers = nil
	if err := w.Admin.Patch(t.Context(), service, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.settled()
	w.wantAll(name, false)
}

func TestWhatIsSomebodyElsesIsLeftAlone(t *testing.T) {
	for kind, other := range map[string]client.Object{
		"Service": &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}},
		"Deployment": &appsv1.Deployment{Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "shop"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "shop"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "shop", Image: "shop:1"}}},
			},
		}},
		"ElasticService": &v1alpha1.ElasticService{Spec: v1alpha1.ElasticServiceSpec{
			Service: "shop", ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "Deployment", Name: "shop"},
		}},
	} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			other.SetNamespace(w.Namespace)
			other.SetName(name + "-files")
			w.create(other)
			version := other.GetResourceVersion()
			w.server(nil)
			w.wantCondition(metav1.ConditionFalse, reasons.NameTaken, "There is a "+kind+" named survival-files")
			there := 0
			for _, o := range []client.Object{&appsv1.Deployment{}, &corev1.Service{}, &v1alpha1.ElasticService{}} {
				if w.there(name+"-files", o) {
					there++
					if o.GetResourceVersion() != version {
						t.Errorf("it was changed: %+v", o)
					}
				}
			}
			if there != 1 || w.Emitted(reasons.NameTaken) != 1 {
				t.Errorf("there are %d objects of the name", there)
			}
			change(w, &v1alpha1.Server{}, name, func(s *v1alpha1.Server) { s.Spec.Files = nil })
			w.get(name+"-files", other)
			change(w, &v1alpha1.Server{}, name, func(s *v1alpha1.Server) { s.Spec.Files = &v1alpha1.FilesSpec{Secret: "sftp"} })
			if err := w.Admin.Delete(t.Context(), other); err != nil {
				t.Fatal(err)
			}
			w.settled()
			w.wantAll(name, true)
		})
	}
}
