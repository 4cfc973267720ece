package main

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

func TestNestedObjectsGetTablesOfTheirOwn(t *testing.T) {
	var w strings.Builder
	writeObject(&w, "spec", &schema{
		Description: "It says\nwhat.",
		Required:    []string{"port"},
		Properties: map[string]schema{
			"port": {Type: "integer", Description: "port is a | port.", Minimum: new(float64(1)), Maximum: new(float64(9))},
			"list": {Type: "array", Description: "list of things.", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &schema{
				Type: "object", Properties: map[string]schema{"kind": {Type: "string", Enum: []apiextensionsv1.JSON{{Raw: []byte(`"a"`)}}}},
			}}},
		},
	})
	for _, want := range []string{
		"### spec\n\nIt says what.\n",
		"| `port` (required) | integer |  | port is a \\| port. *From 1 to 9.* |\n",
		"| `list` | list of [objects](#speclist) |  | list of things. |\n",
		"### spec.list[]\n\nlist of things.\n",
		"| `kind` | string |  | *One of `\"a\"`.* |\n",
	} {
		if !strings.Contains(w.String(), want) {
			t.Errorf("no %q in:\n%s", want, w.String())
		}
	}
}
