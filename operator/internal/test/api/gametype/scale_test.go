package gametype_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/target"
	"dormouse.dev/dormouse/test/api/fixture"
)

// manifest is what an owner keeps in git.
const manifest = `{"apiVersion":"dormouse.dev/v1alpha1","kind":"GameType","metadata":{"name":"duel"},"spec":{"replicas":2,
	"template":{"spec":{"ports":[{"name":"game","containerPort":7777,"protocol":"UDP"}],"template":{"spec":{"containers":[{"name":"game","image":"game:1"}]}}}}}}`

// A tool that applies a manifest again and again neither wakes a game nor puts it to sleep, and
// nothing is written because of it.
func TestAManifestAppliedAHundredTimesWritesNothing(t *testing.T) {
	w := newWorld(t, true)
	apply := func() {
		t.Helper()
		gt := &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: game}}
		if err := w.Admin.Patch(t.Context(), gt, client.RawPatch(types.ApplyPatchType, []byte(manifest)), client.FieldOwner("git"), client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
	}
	again := func(what string, servers int) {
		t.Helper()
		w.settled()
		before := w.gameType()
		for range 100 {
			apply()
		}
		w.settled()
		if after := w.gameType(); after.ResourceVersion != before.ResourceVersion || len(w.alive()) != servers {
			t.Errorf("%s: it is version %s after %s, with %d Servers, want %d", what, after.ResourceVersion, before.ResourceVersion, len(w.alive()), servers)
		}
	}
	apply()
	again("new", 2)
	w.plays(0)

	scaler := target.NewScaler(w.Manager.GetClient(), w.Manager.GetAPIReader())
	ref := target.Ref{Namespace: w.Namespace, ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GameType", Name: game}}
	scale, err := scaler.Get(t.Context(), ref)
	if err != nil || scale.Spec.Replicas != 2 {
		t.Fatalf("its scale is %+v, %v", scale, err)
	}
	if err := scaler.Set(t.Context(), ref, scale, 0); err != nil {
		t.Fatal(err)
	}
	w.eventually("no Servers", func() error { w.guard(); return fixture.WantEqual("Servers", len(w.alive()), 0) })
	w.guard()
	again("asleep", 0)
	if before, after := w.raise("GameType", game, 2); before != 0 || after != 2 {
		t.Errorf("a wake found %d replicas and left %d", before, after)
	}
	again("woken", 2)
}

// A GameType that its controller hasn't seen yet, or that an earlier version made, can be woken.
func TestAGameTypeWithoutScaleCanBeWoken(t *testing.T) {
	w := newWorld(t, true)
	for replicas, want := range map[int32]int32{0: 1, 2: 2} {
		gt := &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: game}}
		if err := w.Admin.Patch(t.Context(), gt, client.RawPatch(types.ApplyPatchType, []byte(manifest)), client.FieldOwner("git"), client.ForceOwnership); err != nil {
			t.Fatal(err)
		}
		before := gt.DeepCopy()
		gt.Spec.Replicas = &replicas
		if err := w.Admin.Patch(t.Context(), gt, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
		scaler := target.NewScaler(w.Manager.GetClient(), w.Manager.GetAPIReader())
		ref := target.Ref{Namespace: w.Namespace, ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GameType", Name: game}}
		if raised, err := scaler.RaiseTo(t.Context(), ref, target.Replicas{AtLeast: 1, FromZero: 1}); err != nil || raised.After != want {
			t.Errorf("with %d replicas it is raised to %d, %v; want %d", replicas, raised.After, err, want)
		}
		if err := w.Admin.Delete(t.Context(), gt); err != nil {
			t.Fatal(err)
		}
		w.eventually("it is gone", func() error { w.guard(); return fixture.WantEqual("GameTypes", w.there(&v1alpha1.GameType{}), false) })
	}
}
