package elasticservice_test

import (
	"bytes"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

func TestWhatIsConvertedFromKubeElastiIsTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	text, err := os.ReadFile("../../../operator/internal/convert/testdata/many.out.yaml")
	if err != nil {
		t.Fatal(err)
	}
	converted := 0
	for document := range bytes.SplitSeq(text, []byte("---\n")) {
		es := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, es); err != nil {
			t.Fatal(err)
		}
		if es.Object == nil {
			continue
		}
		converted++
		es.SetNamespace(w.ns)
		if err := w.c.Create(t.Context(), es, client.DryRunAll, client.FieldValidation("Strict")); err != nil {
			t.Errorf("%s: %v", es.GetName(), err)
		}
	}
	if converted != 3 {
		t.Errorf("there are %d, want 3", converted)
	}
}
