package restapi_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/api/fixture"
)

// keepFiles makes the Service of a server's files, as the operator does.
func (w *world) keepFiles(ctx context.Context, name string) error {
	s := &v1alpha1.Server{}
	if err := w.admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, s); err != nil {
		return err
	}
	svc := &corev1.Service{}
	err := w.admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name + "-files"}, svc)
	if apierrors.IsNotFound(err) {
		svc = &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: name + "-files",
				OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s, v1alpha1.GroupVersion.WithKind("Server"))},
			},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceType(s.Spec.Files.Service.Type), Ports: []corev1.ServicePort{{Name: "sftp", Port: 22}}},
		}
		return w.admin.Create(ctx, svc)
	}
	if err != nil {
		return err
	}
	before := svc.DeepCopy()
	svc.Spec.Type = corev1.ServiceType(s.Spec.Files.Service.Type)
	return w.admin.Patch(ctx, svc, client.MergeFrom(before))
}

// A game that serves its files gives each server its own, which are reached from outside once
// somebody asks for the number.
func TestAServersFilesHaveAPort(t *testing.T) {
	w := newWorld(t)
	gt := w.offer("files")
	before := gt.DeepCopy()
	gt.Spec.Files = &v1alpha1.FilesSpec{Secret: "shared", AllowCIDRs: []string{"203.0.113.0/24"}}
	if err := w.admin.Patch(t.Context(), gt, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	const path, name = "/api/v1/server/77", "server-77"
	w.want(w.call(0, w.token, http.MethodPost, path, `{"ram_gb":2,"disk_gb":10,"game":"files"}`), 201)
	s := &v1alpha1.Server{}
	if err := w.admin.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, s); err != nil {
		t.Fatal(err)
	}
	if s.Spec.Files == nil || s.Spec.Files.Secret != "server-77-files" || len(s.Spec.Files.AllowCIDRs) != 1 || s.Spec.Files.Service.Type != v1alpha1.GameServiceClusterIP {
		t.Fatalf("its files are %+v", s.Spec.Files)
	}
	if err := w.keepFiles(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	ports := func() map[string]any {
		got := w.want(w.call(1, w.token, http.MethodGet, path, ""), 200).body["server"].(map[string]any)
		return got["ports"].(map[string]any)
	}
	if _, open := ports()["sftp"]; open {
		t.Error("it has a number that nobody asked for")
	}
	// The operator sees that the Server asks for a number.
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- fixture.Poll(ctx, func() error {
			s := &v1alpha1.Server{}
			if err := w.admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, s); err != nil {
				return err
			}
			if s.Spec.Files.Service.Type != v1alpha1.GameServiceNodePort {
				return fmt.Errorf("its type is %s", s.Spec.Files.Service.Type)
			}
			return w.keepFiles(ctx, name)
		})
	}()
	number := w.want(w.call(0, w.token, http.MethodPatch, path+"/port/sftp", ""), 200).body["port"]
	if err := <-ended; err != nil {
		t.Error(err)
	}
	cancel()
	if again := w.want(w.call(1, w.token, http.MethodPatch, path+"/port/sftp", ""), 200).body["port"]; again != number || number.(float64) < 30000 {
		t.Errorf("the number is %v, and then %v", number, again)
	}
	if got := ports()["sftp"]; got != number {
		t.Errorf("the server says %v, want %v", got, number)
	}
	// Other calls leave it as it is.
	w.want(w.call(0, w.token, http.MethodPatch, path+"/start", ""), 200)
	if got := ports()["sftp"]; got != number {
		t.Errorf("once it is started the number is %v, want %v", got, number)
	}
}

// Nobody serves them: the operator doesn't run.
func TestFilesThatNobodyServesAreSaidToBe(t *testing.T) {
	w := newWorld(t)
	gt := w.offer("unserved")
	before := gt.DeepCopy()
	gt.Spec.Files = &v1alpha1.FilesSpec{Secret: "shared"}
	if err := w.admin.Patch(t.Context(), gt, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.want(w.call(0, w.token, http.MethodPost, "/api/v1/server/78", `{"ram_gb":2,"disk_gb":10,"game":"unserved"}`), 201)
	began := time.Now()
	r := w.call(0, w.token, http.MethodPatch, "/api/v1/server/78/port/sftp", "")
	if _, _, message := r.error(); r.status != 503 && r.status != 409 || message == "" || time.Since(began) > 15*time.Second {
		t.Errorf("answered %v after %s", r, time.Since(began))
	}
}
