package gametype_test

import (
	"errors"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// mutate has the API server change the template of each new Fleet of the namespace, as
// a webhook of an administrator's may.
func (w *world) mutate() {
	w.t.Helper()
	name := "label-" + w.Namespace
	policy := &admissionv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.MutatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": w.Namespace}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{"dormouse.dev"}, APIVersions: []string{"*"}, Resources: []string{"fleets"}},
				}}},
			},
			ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
			Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{
				Expression: `[JSONPatch{op: "add", path: "/spec/template/spec/template/metadata/labels/cost-center", value: "42"}]`,
			}}},
		},
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{PolicyName: name},
	}
	for _, o := range []client.Object{policy, binding} {
		if err := w.Admin.Create(w.t.Context(), o); err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = w.Admin.Delete(w.t.Context(), o) })
	}
	trial := &v1alpha1.Fleet{ObjectMeta: metav1.ObjectMeta{GenerateName: "trial-", Namespace: w.Namespace}}
	trial.Spec.Template.Spec.Template = corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "trial"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "game", Image: "game"}}},
	}
	w.eventually("the policy works", func() error {
		f := trial.DeepCopy()
		if err := w.Admin.Create(w.t.Context(), f, client.DryRunAll); err != nil {
			return err
		}
		if f.Spec.Template.Spec.Template.Labels["cost-center"] == "" {
			return errors.New("a Fleet is as it was sent")
		}
		return nil
	})
}

// A Fleet whose stored template isn't what was sent is the current one nevertheless:
// another one would be changed likewise, and another, without an end.
func TestAFleetThatAPolicyChangesIsMadeOnce(t *testing.T) {
	w := newWorld(t, false)
	w.mutate()
	w.create(nil)
	for range 10 {
		w.Clock.Pass(time.Second)
		w.reconcile()
	}
	w.settled()
	if fleets := w.all(); len(fleets) != 1 || fleets[0].Spec.Template.Spec.Template.Labels["cost-center"] != "42" {
		t.Fatalf("there are %d Fleets, want one, with the policy's label", len(fleets))
	}
	w.obeys("game:1", 3)

	// An update makes another one, once, and going back finds the first again.
	w.image("game:2")
	w.obeys("game:2", 1)
	w.image("game:1")
	// A new leader remembers nothing.
	w.reconciler.Init()
	w.settled()
	if fleets := w.all(); len(fleets) != 2 {
		t.Errorf("there are %d Fleets of two templates", len(fleets))
	}

	// What somebody changes later isn't what the GameType asks for.
	changed := w.of("game:1")
	before := changed.DeepCopy()
	changed.Spec.Template.Spec.Template.Labels["cost-center"] = "43"
	if err := w.Admin.Patch(t.Context(), changed, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.settled()
	if fleets := w.all(); len(fleets) != 3 {
		t.Errorf("there are %d Fleets, want another one in the place of the one that was changed", len(fleets))
	}
}
