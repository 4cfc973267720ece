package places

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

func TestWantedPlaces(t *testing.T) {
	for name, c := range map[string]struct {
		spec v1alpha1.FleetSpec
		want []int32
	}{
		"one by default":   {want: []int32{0}},
		"the first ones":   {spec: v1alpha1.FleetSpec{Replicas: new(int32(3))}, want: []int32{0, 1, 2}},
		"named ones":       {spec: v1alpha1.FleetSpec{Replicas: new(int32(3)), Places: "0,4-5"}, want: []int32{0, 4, 5}},
		"none of the name": {spec: v1alpha1.FleetSpec{Replicas: new(int32(0)), Places: "0,4-5"}, want: []int32{}},
	} {
		got, err := Wanted(&c.spec)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
		}
		if again, err := Wanted(&v1alpha1.FleetSpec{Replicas: c.spec.Replicas, Places: Format(got)}); err != nil || !slices.Equal(again, c.want) {
			t.Errorf("%s: written as %q it is %v, %v", name, Format(got), again, err)
		}
	}
	if _, err := Wanted(&v1alpha1.FleetSpec{Places: "3-1"}); err == nil {
		t.Error("a range that ends before it begins is accepted")
	}
}

func TestAPlaceHasTheNameOfItsGameTypeWhateverTheRevision(t *testing.T) {
	f := &v1alpha1.Fleet{ObjectMeta: metav1.ObjectMeta{Name: "world-7f9c"}}
	if got := Name(f, 2); got != "world-7f9c-2" {
		t.Errorf("a Fleet's place is %s", got)
	}
	gt := &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Name: "world"}}
	f.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(gt, v1alpha1.GroupVersion.WithKind("GameType"))}
	if got := Name(f, 2); got != "world-2" {
		t.Errorf("a GameType's place is %s", got)
	}
}

func TestAServersPlaceIsItsLabel(t *testing.T) {
	for label, want := range map[string]int32{"": None, "0": 0, "12": 12, "-1": None, "x": None} {
		s := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{wellknown.PlaceLabel: label}}}
		if got := Of(s); got != want {
			t.Errorf("label %q is place %d, want %d", label, got, want)
		}
	}
}
