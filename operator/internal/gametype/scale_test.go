package gametype

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/index"
)

// A manifest has replicas and no scale. Applying it again must change nothing.
func TestAManifestThatIsAppliedAgainChangesNothing(t *testing.T) {
	scale := func(replicas, of int32) *v1alpha1.GameTypeScale {
		return &v1alpha1.GameTypeScale{Replicas: replicas, Of: &of}
	}
	for name, c := range map[string]struct {
		replicas *int32
		is       *v1alpha1.GameTypeScale
		want     int32
	}{
		"a new one":                                     {replicas: new(int32(2)), want: 2},
		"a new one that says nothing":                   {want: 1},
		"a new one that begins asleep":                  {replicas: new(int32(2)), is: &v1alpha1.GameTypeScale{}, want: 0},
		"asleep":                                        {replicas: new(int32(2)), is: scale(0, 2), want: 0},
		"awake":                                         {replicas: new(int32(2)), is: scale(2, 2), want: 2},
		"awake, as an autoscaler has it":                {replicas: new(int32(2)), is: scale(5, 2), want: 5},
		"asleep, with another number":                   {replicas: new(int32(4)), is: scale(0, 2), want: 0},
		"awake, with another number":                    {replicas: new(int32(4)), is: scale(5, 2), want: 4},
		"told to have none":                             {replicas: new(int32(0)), is: scale(2, 2), want: 0},
		"told to have some again":                       {replicas: new(int32(2)), is: scale(0, 0), want: 2},
		"a manifest that has none, woken by a player":   {replicas: new(int32(0)), is: scale(1, 0), want: 1},
		"a game that an earlier version put to sleep":   {replicas: new(int32(0)), want: 0},
		"scaled while the controller had not seen it":   {replicas: new(int32(2)), is: &v1alpha1.GameTypeScale{Replicas: 3}, want: 3},
		"a manifest that takes the number out is for 1": {is: scale(3, 3), want: 1},
	} {
		got := scaleOf(&v1alpha1.GameTypeSpec{Replicas: c.replicas, Scale: c.is})
		if got.Replicas != c.want {
			t.Errorf("%s: %d, want %d", name, got.Replicas, c.want)
		}
		if again := scaleOf(&v1alpha1.GameTypeSpec{Replicas: c.replicas, Scale: &got}); again.Replicas != got.Replicas {
			t.Errorf("%s: it comes to %d and then to %d", name, got.Replicas, again.Replicas)
		}
	}
}

// Another number of replicas doesn't go past the behavior of an autoscaler.
func TestAnAutoscaledGameKeepsItsServersWhenItsReplicasChange(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		replicas   int32
		is         *v1alpha1.GameTypeScale
		autoscaled string
		want, of   int32
	}{
		"awake, with fewer":              {replicas: 2, is: &v1alpha1.GameTypeScale{Replicas: 8, Of: new(int32(4))}, autoscaled: "duel", want: 8, of: 2},
		"awake, with more":               {replicas: 9, is: &v1alpha1.GameTypeScale{Replicas: 8, Of: new(int32(4))}, autoscaled: "duel", want: 8, of: 9},
		"told to have none":              {replicas: 0, is: &v1alpha1.GameTypeScale{Replicas: 8, Of: new(int32(4))}, autoscaled: "duel", want: 0, of: 0},
		"told to have some again":        {replicas: 2, is: &v1alpha1.GameTypeScale{Of: new(int32(0))}, autoscaled: "duel", want: 2, of: 2},
		"asleep":                         {replicas: 2, is: &v1alpha1.GameTypeScale{Of: new(int32(4))}, autoscaled: "duel", want: 0, of: 2},
		"a new one":                      {replicas: 2, autoscaled: "duel", want: 2, of: 2},
		"another game has an autoscaler": {replicas: 2, is: &v1alpha1.GameTypeScale{Replicas: 8, Of: new(int32(4))}, autoscaled: "race", want: 2, of: 2},
		"nothing has changed":            {replicas: 4, is: &v1alpha1.GameTypeScale{Replicas: 8, Of: new(int32(4))}, autoscaled: "duel", want: 8, of: 4},
	} {
		gt := &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "duel", UID: "1"}, Spec: v1alpha1.GameTypeSpec{Replicas: &c.replicas, Scale: c.is}}
		gas := &v1alpha1.GameAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "gas"}}
		gas.Spec.TargetRef.Name = c.autoscaled
		r := &Reconciler{Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(gt, gas).
			WithIndex(gas, index.AutoscalerTarget, func(o client.Object) []string {
				return []string{index.AutoscalerTargetOf(o.(*v1alpha1.GameAutoscaler))}
			}).Build()}
		if err := r.Client.Get(t.Context(), client.ObjectKeyFromObject(gt), gt); err != nil {
			t.Fatal(err)
		}
		seen := AutoscaledReplicas(&gt.Spec)
		if err := r.followReplicas(t.Context(), gt); err != nil {
			t.Fatal(err)
		}
		if s := gt.Spec.Scale; s.Replicas != c.want || *s.Of != c.of {
			t.Errorf("%s: %d of %d, want %d of %d", name, s.Replicas, *s.Of, c.want, c.of)
		}
		if c.autoscaled == gt.Name && seen != c.want {
			t.Errorf("%s: before that its autoscaler sees %d, want %d", name, seen, c.want)
		}
	}
}
