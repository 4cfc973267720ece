package elasticservice_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/test/api/fixture"
	"dormouse.dev/dormouse/test/sentrysink"
)

// reportedWithin is long because all of an operator's reports share a limit, and
// other tests cause some.
const reportedWithin = time.Minute

func TestAnErrorOfTheReconcilerIsReportedToSentry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deployment("lobby", 0)
	w.service("lobby", func(s *corev1.Service) { s.Annotations = map[string]string{"note": "of-no-concern-to-sentry"} })
	w.elastic("lobby")
	es := w.want("lobby", promptly, ready)
	w.refuse("dormouse.dev", "v1alpha1", "elasticservices/status", admissionregistrationv1.Update, func(ctx context.Context) error {
		probed := es.DeepCopy()
		probed.Status.Sessions = 7
		return w.c.Status().Patch(ctx, probed, client.MergeFrom(es), client.DryRunAll)
	})
	w.edit(es, func() { es.Spec.MinReplicas = new(int32(2)) })

	var found sentrysink.Event
	fixture.Eventually(t, reportedWithin, "a report", func(context.Context) error {
		events, problems, _ := cluster.sentry.Events()
		if len(problems) > 0 {
			return fixture.Fatal(errors.New(strings.Join(problems, "; ")))
		}
		for _, e := range events {
			if e.Tags["namespace"] == w.ns {
				found = e
				return nil
			}
		}
		return fmt.Errorf("%d reports, none of namespace %s", len(events), w.ns)
	})
	want := map[string]string{
		"program": "operator", "controller": "elasticservice", "kind": "ElasticService", "namespace": w.ns, "name": "lobby",
	}
	if diff := cmp.Diff(want, found.Tags); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	if found.ServerName != podName || !strings.Contains(found.Exception[0].Value, "denied request: no more of them") {
		t.Errorf("server %q, error %q", found.ServerName, found.Exception[0].Value)
	}
	for _, payload := range []string{"of-no-concern-to-sentry", "eyJ", "Bearer", "KUBECONFIG", "containerPort", "resourceVersion"} {
		if strings.Contains(found.Text, payload) {
			t.Errorf("%q was sent:\n%s", payload, found.Text)
		}
	}
}

// What the API server refuses for good is the user's to mend: it says so, and isn't an error
// of the reconciler's.
func TestAPrivateServiceThatIsRefusedIsSaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deployment("lobby", 0)
	w.service("lobby")
	w.refuse("", "v1", "services", admissionregistrationv1.Create, func(ctx context.Context) error {
		return w.c.Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "probe"},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}},
		}, client.DryRunAll)
	})
	w.elastic("lobby")
	w.want("lobby", promptly, hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.Refused),
		message(conditions.Ready, "lobby-dormouse"), message(conditions.Ready, "no more of them"))
	w.wantWarning(reasons.Refused, "no more of them")
}

func TestEndpointSlicesThatAreRefusedAreSaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.deployment("lobby", 0)
	w.service("lobby")
	w.refuse("discovery.k8s.io", "v1", "endpointslices", admissionregistrationv1.Create, func(ctx context.Context) error {
		return w.c.Create(ctx, &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "probe"}, AddressType: discoveryv1.AddressTypeIPv4,
		}, client.DryRunAll)
	})
	w.elastic("lobby")
	w.want("lobby", promptly, hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.Refused),
		message(conditions.Ready, "EndpointSlices of Service lobby"), message(conditions.Ready, "no more of them"))
	w.wantWarning(reasons.Refused, "no more of them")
}

// refuse makes the API server refuse something of the namespace, as the probe shows.
func (w *world) refuse(group, version, resource string, operation admissionregistrationv1.OperationType, probe func(context.Context) error) {
	w.t.Helper()
	name := "none-" + w.ns
	scope := &admissionregistrationv1.MatchResources{
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.ns}},
	}
	rule := admissionregistrationv1.NamedRuleWithOperations{RuleWithOperations: admissionregistrationv1.RuleWithOperations{
		Operations: []admissionregistrationv1.OperationType{operation},
		Rule:       admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{version}, Resources: []string{resource}},
	}}
	objects := []client.Object{
		&admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{rule}},
				Validations:      []admissionregistrationv1.Validation{{Expression: "false", Message: "no more of them"}},
			},
		},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: name, MatchResources: scope,
				ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			},
		},
	}
	for _, o := range objects {
		if err := w.c.Create(w.t.Context(), o); err != nil {
			w.t.Fatalf("create %T: %v", o, err)
		}
		w.t.Cleanup(func() {
			if err := w.c.Delete(cluster.cleanup, o); err != nil {
				w.t.Errorf("delete %T: %v", o, err)
			}
		})
	}
	fixture.Eventually(w.t, promptly, "the API server refuses "+resource, func(ctx context.Context) error {
		err := probe(ctx)
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			return nil
		}
		return fmt.Errorf("a probe was answered: %w", errors.Join(err, errors.New("want a refusal")))
	})
}

func TestAnOperatorWithABadDSNSaysSoAndEnds(t *testing.T) {
	t.Parallel()
	command := exec.CommandContext(t.Context(), os.Getenv(operatorBinary))
	command.Env = append(os.Environ(), "POD_NAMESPACE="+fixture.SystemNamespace, "SENTRY_DSN=https://secretkey@")
	output, err := command.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("the operator ended with %v, want 1", err)
	}
	text := strings.TrimSpace(string(output))
	if !strings.Contains(text, "SENTRY_DSN must be like") || strings.Contains(text, "secretkey") || strings.Contains(text, "\n") {
		t.Errorf("it said %q, want one line about SENTRY_DSN, without the key", text)
	}
}
