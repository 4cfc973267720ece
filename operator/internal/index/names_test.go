package index

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/endpoints"
)

// elastic has a name, a Service and the name of a Deployment.
func elastic(name, service, target string) *v1alpha1.ElasticService {
	return &v1alpha1.ElasticService{
		ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: name},
		Spec:       v1alpha1.ElasticServiceSpec{Service: service, ScaleTargetRef: v1alpha1.ScaleTargetRef{APIVersion: "apps/v1", Kind: "Deployment", Name: target}},
	}
}

// cached has the indexes of Setup over ElasticServices.
func cached(t *testing.T, objects ...client.Object) client.Reader {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&v1alpha1.ElasticService{}, Service, serviceKeys).
		WithIndex(&v1alpha1.ElasticService{}, PrivateService, privateServiceKeys).
		WithIndex(&v1alpha1.ElasticService{}, Target, targetKeys).Build()
}

func TestWhoHasAServiceOrATargetIsFoundWhateverItsNameIs(t *testing.T) {
	long := strings.Repeat("l", 63)
	shortened := endpoints.PrivateServiceName(long)
	// The private Service of this one would have the name of the long one's.
	clashes := endpoints.PublicServiceName(shortened)
	elsewhere := elastic("lobby", "lobby", "lobby")
	elsewhere.Namespace = "other"
	reader := cached(t, elsewhere,
		elastic("lobby", "lobby", "lobby"), elastic("hall", "lobby", "lobby"), elastic("yard", "lobby", "lobby"),
		elastic("x", "y", "y"), elastic("y", "x", "x"),
		elastic(long, long, long), elastic("other-than-long", clashes, "z"), elastic(clashes, "z", "z"),
		elastic("lobby-dormouse", "lobby-dormouse", "lobby-dormouse"))
	type find func(context.Context, client.Reader, string, string) ([]v1alpha1.ElasticService, error)
	for what, c := range map[string]struct {
		find  find
		asked string
		want  []string
	}{
		"a Service of several":             {OfService, "lobby", []string{"hall", "lobby", "yard"}},
		"a Service of another name":        {OfService, "y", []string{"x"}},
		"a Service with a long name":       {OfService, long, []string{long}},
		"a Service that nobody has":        {OfService, "hall", nil},
		"no Service":                       {OfService, "", nil},
		"a target of several":              {OfTarget, "Deployment/lobby", []string{"hall", "lobby", "yard"}},
		"a target of another name":         {OfTarget, "Deployment/y", []string{"x"}},
		"a target with a long name":        {OfTarget, "Deployment/" + long, []string{long}},
		"a target of another kind":         {OfTarget, "StatefulSet/lobby", nil},
		"a private Service of several":     {OfPrivateService, "lobby-dormouse", []string{"hall", "lobby", "yard"}},
		"a private Service's own":          {OfPrivateService, "lobby-dormouse-dormouse", []string{"lobby-dormouse"}},
		"a private Service's other name":   {OfPrivateService, "y-dormouse", []string{"x"}},
		"a private Service's shorter name": {OfPrivateService, shortened, []string{long, "other-than-long"}},
		"a Service that isn't private":     {OfPrivateService, "lobby", nil},
	} {
		found, err := c.find(t.Context(), reader, "games", c.asked)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, r := range Requests(found) {
			if r.Namespace != "games" {
				t.Errorf("%s: one of %s is found", what, r.Namespace)
			}
			names = append(names, r.Name)
		}
		slices.Sort(names)
		if diff := cmp.Diff(c.want, names); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}

// Most have one name, and no key.
func TestWhatHasItsOwnNameHasNoKey(t *testing.T) {
	for what, c := range map[string]struct {
		keys client.IndexerFunc
		one  *v1alpha1.ElasticService
		want []string
	}{
		"its own Service":           {serviceKeys, elastic("lobby", "lobby", "x"), nil},
		"another Service":           {serviceKeys, elastic("lobby", "x", "lobby"), []string{"x"}},
		"its own target":            {targetKeys, elastic("lobby", "x", "lobby"), nil},
		"another target":            {targetKeys, elastic("lobby", "lobby", "x"), []string{"Deployment/x"}},
		"a private Service":         {privateServiceKeys, elastic("x", "lobby", "x"), nil},
		"a shorter private Service": {privateServiceKeys, elastic("x", strings.Repeat("l", 55), "x"), []string{endpoints.PrivateServiceName(strings.Repeat("l", 55))}},
	} {
		if diff := cmp.Diff(c.want, c.keys(c.one)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
}
