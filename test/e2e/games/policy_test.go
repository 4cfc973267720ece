package games

import (
	"context"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
)

// A cluster's policy changes what is sent. The Fleet that is stored isn't the one that the
// GameType asked for, nor the Servers those of the Fleet, and all of them are current.
func TestAPolicyThatChangesTemplatesMakesNoLoop(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	policy := &admissionregistrationv1.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: ns + "-seconds"},
		Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			MatchConstraints: &admissionregistrationv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}},
				ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
					Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
					Rule:       admissionregistrationv1.Rule{APIGroups: []string{"dormouse.dev"}, APIVersions: []string{"v1alpha1"}, Resources: []string{"fleets", "servers"}},
				}}},
			},
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1.JSONPatch{Expression: `[JSONPatch{op: "add",
					path: (object.kind == "Fleet" ? "/spec/template" : "") + "/spec/template/spec/terminationGracePeriodSeconds", value: 7}]`},
			}},
		},
	}
	binding := &admissionregistrationv1.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec:       admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{PolicyName: policy.Name},
	}
	for _, o := range []client.Object{policy, binding} {
		if err := suite.Cluster.Client.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := suite.Cluster.Client.Delete(context.WithoutCancel(ctx), o); err != nil {
				t.Error(err)
			}
		})
	}
	// It holds a moment after it was made.
	err := env.WaitUntil(ctx, "the policy holds", func(ctx context.Context) (bool, error) {
		s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "probe"}, Spec: suite.Cluster.ServerSpec()}
		err := suite.Cluster.Client.Create(ctx, s, client.DryRunAll)
		grace := s.Spec.Template.Spec.TerminationGracePeriodSeconds
		return grace != nil && *grace == 7, err
	})
	if err != nil {
		t.Fatal(err)
	}
	g := newGameType(ctx, t, ns, 2)
	gt := waitGameType(ctx, t, g, "updated", func(gt *v1alpha1.GameType) bool {
		return gt.Status.UpdatedReplicas == 2 && gt.Status.CurrentRevision != nil
	})
	if n := len(gt.Status.Revisions); n != 1 {
		t.Errorf("it has %d revisions, want 1", n)
	}
	var fleets v1alpha1.FleetList
	if err := suite.Cluster.Client.List(ctx, &fleets, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	if len(fleets.Items) != 1 {
		t.Fatalf("there are %d Fleets, want 1", len(fleets.Items))
	}
	if f := &fleets.Items[0]; f.Status.UpdatedReplicas != 2 || *f.Spec.Template.Spec.Template.Spec.TerminationGracePeriodSeconds != 7 {
		t.Errorf("of its Servers %d are of the template, want 2; the policy set %d s, want 7",
			f.Status.UpdatedReplicas, *f.Spec.Template.Spec.Template.Spec.TerminationGracePeriodSeconds)
	}
	if servers := serversOf(ctx, t, g); len(servers) != 2 {
		t.Errorf("there are %d Servers, want 2", len(servers))
	}
}
