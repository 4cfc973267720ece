package places

import (
	"slices"
	"strconv"
	"strings"
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
}

// 60,000 characters are room for 7,500 ranges of 100,000 places each.
func TestWhatIsNoListOfPlacesOrTooLongIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ places, want string }{
		"a range that ends before it begins": {"3-1", "ends before it begins"},
		"a word":                             {"0,x", "no number"},
		"nothing between two commas":         {"0,,1", "no number"},
		"a number that is far too long":      {"0-99999999999999999999", "no number"},
		"a range of too many":                {"0-10000", "more than 10000"},
		"many ranges of too many":            {strings.Repeat("0-99999,", 7499) + "0-99999", "more than 10000"},
		"many ranges with too many in all":   {strings.Repeat("0-9999,", 7499) + "0-9999", "more than 10000"},
		"one more than may be":               {"1-10000,0", "more than 10000"},
	} {
		all, err := parse(c.places)
		if err == nil || !strings.Contains(err.Error(), c.want) || all != nil {
			t.Errorf("%s: %d places, %v; want an error with %q", name, len(all), err, c.want)
		}
		if _, err := Wanted(&v1alpha1.FleetSpec{Places: c.places}); err == nil {
			t.Errorf("%s: a Fleet may have that", name)
		}
	}
}

// Nothing is added before it is counted: what is refused costs no more than what is accepted.
func TestARefusedListCostsNoMoreThanTheLongestOne(t *testing.T) {
	cost := func(places string) float64 {
		return testing.AllocsPerRun(3, func() { _, _ = parse(places) })
	}
	most := cost("0-9999")
	for name, places := range map[string]string{
		"ranges that are too long": strings.Repeat("0-99999,", 7499) + "0-99999",
		"ranges of the same":       strings.Repeat("0-9999,", 7499) + "0-9999",
	} {
		if got := cost(places); got > most+5 { // the error
			t.Errorf("%s: %v allocations, and the longest list takes %v", name, got, most)
		}
	}
}

func TestAsManyPlacesAsAFleetMayHaveServers(t *testing.T) {
	single := make([]string, Most)
	for i := range single {
		single[i] = strconv.Itoa(Most - 1 - i)
	}
	for name, places := range map[string]string{"a range": "0-9999", "each by itself": strings.Join(single, ",")} {
		got, err := Wanted(&v1alpha1.FleetSpec{Replicas: new(int32(Most)), Places: places})
		if err != nil || !slices.Equal(got, First(Most)) || len(places) > 60_000 {
			t.Errorf("%s: %d places, %v", name, len(got), err)
		}
	}
	if got, err := parse("7,2,2-3"); err != nil || !slices.Equal(got, []int32{2, 3, 7}) {
		t.Errorf("a place that is named twice: %v, %v", got, err)
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
