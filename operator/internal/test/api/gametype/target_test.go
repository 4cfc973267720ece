package gametype_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/target"
)

// Why no server comes up is looked for in the target's conditions, with the rights
// that the operator has.
func TestTheOperatorMayReadTheConditionsOfItsOwnKinds(t *testing.T) {
	w := newWorld(t, true)
	w.create(asleep)
	w.settled()
	gt, fleet := w.gameType(), w.of("game:1")
	scaler := target.NewScaler(w.mgr.GetClient())
	for name, o := range map[string]metav1.Object{"GameType": gt, "Fleet": fleet} {
		ref := target.Ref{Namespace: w.ns, ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: name, Name: o.GetName()}}
		uid, _, err := scaler.Status(t.Context(), ref)
		if err != nil || uid != o.GetUID() {
			t.Errorf("%s: %s, %v; want %s", name, uid, err, o.GetUID())
		}
	}
	ref := target.Ref{Namespace: w.ns, ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GameType", Name: game}}
	if _, conditions, err := scaler.Status(t.Context(), ref); err != nil || meta.FindStatusCondition(conditions, v1alpha1.ConditionProgressing) == nil {
		t.Errorf("the GameType's conditions are %v, %v", conditions, err)
	}
}
