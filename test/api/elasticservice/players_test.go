package elasticservice_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/test/api/fixture"
)

// fleet is one Server that plays the sidecar's part, too.
type fleet struct {
	w        *world
	server   string
	pod      *corev1.Pod
	token    string
	sequence uint64
}

// fleet makes a Fleet of one Server, in whose Pod a game has been running for a
// minute as far as kubelet would say.
func (w *world) fleet(name string) *fleet {
	w.t.Helper()
	w.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}})
	w.create(&v1alpha1.Fleet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.FleetSpec{Template: v1alpha1.ServerTemplate{Spec: v1alpha1.ServerSpec{Template: corev1.PodTemplateSpec{
			// This API server has no admission that fills it in.
			Spec: corev1.PodSpec{ServiceAccountName: "default", Containers: []corev1.Container{{Name: "game", Image: "none"}}},
		}}}},
	})
	f := &fleet{w: w}
	fixture.Eventually(w.t, promptly, "the Pod of the Fleet's Server", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := w.c.List(ctx, &pods, client.InNamespace(w.ns), client.MatchingLabels{wellknown.FleetLabel: name}); err != nil {
			return err
		}
		if len(pods.Items) != 1 {
			return fmt.Errorf("there are %d", len(pods.Items))
		}
		f.pod = &pods.Items[0]
		return nil
	})
	f.server = f.pod.Labels[wellknown.ServerLabel]
	original := f.pod.DeepCopy()
	f.pod.Status.Phase = corev1.PodRunning
	f.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "game", State: corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now().Add(-time.Minute))},
	}}}
	if err := w.c.Status().Patch(w.t.Context(), f.pod, client.MergeFrom(original)); err != nil {
		w.t.Fatalf("write the status of Pod %s: %v", f.pod.Name, err)
	}
	var err error
	if f.token, err = fixture.Token(w.t.Context(), cluster.client, w.ns, "default", wellknown.TokenAudience, f.pod); err != nil {
		w.t.Fatal(err)
	}
	return f
}

// tell reports to each operator how many play: they have no Pods here by which
// they could ask each other.
func (f *fleet) tell(players int32) {
	f.w.t.Helper()
	f.sequence++
	body, err := json.Marshal(reportapi.Report{
		Server: f.server, Instance: "one", Sequence: f.sequence, DeletionAllowed: players == 0,
		Game: reportapi.Game{State: v1alpha1.GameReady, Reported: true, Players: &v1alpha1.PlayersStatus{Current: players, Capacity: 8}},
	})
	if err != nil {
		f.w.t.Fatal(err)
	}
	for replica := range cluster.operators {
		fixture.Eventually(f.w.t, promptly, "the report is taken", func(context.Context) error {
			got, err := call(f.w.t, replica, http.MethodPost, reportapi.ReportPath, f.token, body) //nolint:contextcheck // it takes the test's own
			if err == nil && got.code != http.StatusOK {
				err = fmt.Errorf("answered %d %s", got.code, got.body)
			}
			return err
		})
	}
}

func TestAFleetSleepsOnceEveryServerSaysThatNobodyPlays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.fleet("arena")
	w.service("arena")
	w.elastic("arena", sleepAfter(time.Second), func(es *v1alpha1.ElasticService) {
		es.Spec.ScaleTargetRef = v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Fleet", Name: "arena"}
		es.Spec.Idle = &v1alpha1.Idle{Players: true}
	})
	w.servers("arena", newServer())
	awake := inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe)
	signal := hasCondition(conditions.IdleSignal, metav1.ConditionTrue, reasons.OK)
	// Its sidecar says nothing.
	w.want("arena", promptly, awake, signal, hasCondition(conditions.PlayersKnown, metav1.ConditionFalse, reasons.ServersSilent),
		hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.ServersSilent), message(conditions.PlayersKnown, f.server))
	w.stays("arena", 3*time.Second, awake)
	f.tell(1)
	w.stays("arena", 6*time.Second, awake)
	f.tell(0)
	w.want("arena", afterSettling, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	fixture.Eventually(t, promptly, "the Fleet at zero", func(ctx context.Context) error {
		got := &v1alpha1.Fleet{}
		if err := w.read(ctx, "arena", got); err != nil {
			return err
		}
		if got.Spec.Replicas == nil || *got.Spec.Replicas != 0 {
			return errors.New("it isn't")
		}
		return nil
	})
}

func TestAPlayerStopsAFleetFromFallingAsleep(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	f := w.fleet("arena")
	f.tell(0)
	w.service("arena")
	since := w.latest()
	w.elastic("arena", sleepAfter(time.Second), func(es *v1alpha1.ElasticService) {
		es.Spec.ScaleTargetRef = v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Fleet", Name: "arena"}
		es.Spec.Idle = &v1alpha1.Idle{Players: true}
	})
	w.servers("arena", newServer())
	w.must("FallingAsleep", afterSettling, since, toPhase("arena", v1alpha1.PhaseFallingAsleep))
	f.tell(1)
	w.want("arena", promptly, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
	w.stays("arena", 6*time.Second, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe),
		hasCondition(conditions.PlayersKnown, metav1.ConditionTrue, reasons.OK))
}
