package elasticservice_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/test/api/fixture"
)

// afterLooking is for what the operator looks at only once a server is late, and
// then every five seconds and more.
const afterLooking = 60 * time.Second

// wantWarning and wantEvent wait for an event of the ElasticService lobby.
func (w *world) wantWarning(reason, words string) {
	w.t.Helper()
	w.wantEventOf(corev1.EventTypeWarning, reason, words)
}

func (w *world) wantEvent(reason, words string) {
	w.t.Helper()
	w.wantEventOf(corev1.EventTypeNormal, reason, words)
}

func (w *world) wantEventOf(kind, reason, words string) {
	w.t.Helper()
	fixture.Eventually(w.t, promptly, "the event "+reason, func(ctx context.Context) error {
		var list eventsv1.EventList
		if err := w.c.List(ctx, &list, client.InNamespace(w.ns)); err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Regarding.Name == "lobby" && e.Type == kind && e.Reason == reason && strings.Contains(e.Note, words) {
				return nil
			}
		}
		return fmt.Errorf("none of %d events", len(list.Items))
	})
}

// message passes a condition whose message has the words.
func message(kind, words string) check {
	return func(es *v1alpha1.ElasticService) error {
		if c := meta.FindStatusCondition(es.Status.Conditions, kind); c == nil || !strings.Contains(c.Message, words) {
			return fmt.Errorf("condition %s is %+v, want %q in its message", kind, c, words)
		}
		return nil
	}
}

// pod makes a pod of a Deployment, whose container is in a state.
func (w *world) pod(d *appsv1.Deployment, state corev1.ContainerState) *corev1.Pod {
	w.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: d.Name + "-1", Labels: d.Spec.Selector.MatchLabels},
		Spec:       d.Spec.Template.Spec,
	}
	w.create(pod)
	w.podIs(pod, state)
	return pod
}

// podIs has a pod's container be in a state.
func (w *world) podIs(pod *corev1.Pod, state corev1.ContainerState) {
	w.t.Helper()
	original := pod.DeepCopy()
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "game", Image: "none", State: state}}
	if err := w.c.Status().Patch(w.t.Context(), pod, client.MergeFrom(original)); err != nil {
		w.t.Fatal(err)
	}
}

// A server that can't come up costs nothing any more once its last client has left.
func TestAServerThatDoesntComeUpIsPutToSleepOnceNobodyWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	d := w.deployment("lobby", 0)
	w.service("lobby")
	w.elastic("lobby", sleepAfter(time.Second), byPlayers(1))
	w.want("lobby", promptly, ready, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	w.clients(0, 0, 1)
	w.wake(0, resolverToken(t), "lobby")
	w.wantReplicas(1)
	broken := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}
	// It has just been started, for as long as the test takes.
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Time{Time: time.Now().Add(time.Hour)}}}
	pod := w.pod(d, running)
	// Somebody waits for it; then nobody does, and it may be in use.
	w.podIs(pod, broken)
	w.want("lobby", afterLooking, hasCondition(conditions.ServerUp, metav1.ConditionFalse, reasons.ImageUnavailable))
	w.podIs(pod, running)
	w.want("lobby", afterLooking, hasCondition(conditions.ServerUp, metav1.ConditionUnknown, reasons.ServerStarting))
	w.clients(0, 0, 0)
	w.stays("lobby", 3*time.Second, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy))
	w.podIs(pod, broken)
	w.want("lobby", afterLooking, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	w.wantReplicas(0)
	w.wantEvent("FallingAsleep", "No server comes up, and nobody has waited for one for 1s.")
	w.wake(0, resolverToken(t), "lobby")
	w.wantReplicas(1)
	// It has its time again.
	w.podIs(pod, running)
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy))
}

func TestAServerThatDoesntComeUpIsExplained(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		setUp  func(*world, *appsv1.Deployment)
		reason string
		words  string
	}{
		"by its pod": {
			setUp: func(w *world, d *appsv1.Deployment) {
				w.pod(d, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}})
			},
			reason: reasons.ImageUnavailable, words: "Container game of pod lobby-1 can't get its image none",
		},
		"by the target's status": {
			setUp: func(w *world, d *appsv1.Deployment) {
				original := d.DeepCopy()
				d.Status.Conditions = []appsv1.DeploymentCondition{{
					Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: "forbidden: exceeded quota: q",
				}}
				if err := w.c.Status().Patch(w.t.Context(), d, client.MergeFrom(original)); err != nil {
					w.t.Fatal(err)
				}
			},
			reason: reasons.QuotaExceeded, words: "Deployment lobby may not make a pod",
		},
		"by the target's events": {
			setUp: func(w *world, d *appsv1.Deployment) {
				w.create(&corev1.Event{
					ObjectMeta:     metav1.ObjectMeta{Name: "lobby.1"},
					InvolvedObject: corev1.ObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: w.ns, Name: d.Name, UID: d.UID},
					Type:           corev1.EventTypeWarning, Reason: "FailedCreate", Message: "forbidden: no such hat",
					LastTimestamp: metav1.Time{Time: time.Now().Add(time.Minute)},
				})
			},
			reason: reasons.PodRefused, words: "no such hat",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			d := w.deployment("lobby", 0)
			w.service("lobby")
			w.elastic("lobby")
			w.want("lobby", promptly, ready, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy),
				hasCondition(conditions.ServerUp, metav1.ConditionUnknown, reasons.NotNeeded))
			w.wake(0, resolverToken(t), "lobby")
			w.want("lobby", promptly, ready, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy),
				hasCondition(conditions.ServerUp, metav1.ConditionUnknown, reasons.ServerStarting))
			if err := w.read(t.Context(), "lobby", d); err != nil {
				t.Fatal(err)
			}
			c.setUp(w, d)
			w.want("lobby", afterLooking, hasCondition(conditions.ServerUp, metav1.ConditionFalse, c.reason),
				hasCondition(conditions.Ready, metav1.ConditionFalse, c.reason),
				message(conditions.ServerUp, c.words), message(conditions.Ready, c.words))
			w.wantWarning(c.reason, c.words)
			w.servers("lobby", newServer())
			w.want("lobby", promptly, ready, hasCondition(conditions.ServerUp, metav1.ConditionTrue, reasons.OK))
		})
	}
}

func TestAWakeThatAdmissionForbidsIsToComeAgainAndSaysWhy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	since := w.asleep("lobby")
	w.forbidScaling()
	body := []byte(`{"count":1,"svc":"lobby","namespace":"` + w.ns + `"}`)
	var got answer
	for deadline := time.Now().Add(promptly); ; {
		var err error
		if got, err = call(t, 0, http.MethodPost, informerapi.WakePath, resolverToken(t), body); err != nil {
			t.Fatal(err)
		}
		// An API server that is busy with other tests may be too slow to say it at once.
		if !strings.Contains(got.sentence(t), "too slow: try again") || time.Now().After(deadline) {
			break
		}
	}
	if got.code != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("answered %d with Retry-After %q, want 503 with one", got.code, got.header.Get("Retry-After"))
	}
	if s := got.sentence(t); !strings.Contains(s, "may not write the scale of Deployment "+w.ns+"/lobby") {
		t.Errorf("the sentence is %q, want it to say what is forbidden", s)
	}
	w.wantWarning(reasons.TargetForbidden, "let it scale Deployment "+w.ns+"/lobby")
	w.wantStillAsleep(since)
}

// forbidScaling makes the API server refuse every change of a scale in the
// namespace.
func (w *world) forbidScaling() {
	w.t.Helper()
	name := "forbid-" + w.ns
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: w.ns}},
				ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Update},
					Rule:       admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments/scale"}},
				}}},
			},
			Validations: []admissionv1.Validation{{Expression: "false", Message: "no scaling here", Reason: new(metav1.StatusReasonForbidden)}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
		},
	}
	for _, o := range []client.Object{policy, binding} {
		if err := w.c.Create(w.t.Context(), o); err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = w.c.Delete(cluster.cleanup, o) })
	}
	fixture.Eventually(w.t, afterLooking, "the policy", func(ctx context.Context) error {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "lobby"}}
		s := &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 1}}
		err := w.c.SubResource("scale").Update(ctx, d, client.WithSubResourceBody(s),
			&client.SubResourceUpdateOptions{UpdateOptions: client.UpdateOptions{DryRun: []string{metav1.DryRunAll}}})
		if !apierrors.IsForbidden(err) {
			return errors.Join(errors.New("scaling is still allowed"), err)
		}
		return nil
	})
}
