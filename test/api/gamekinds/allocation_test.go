package gamekinds_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/test/api/fixture"
)

const allocation = `
apiVersion: dormouse.dev/v1alpha1
kind: Allocation
metadata: {name: match, namespace: default}
spec: {targetRef: {name: duel}}
`

func TestAllocationIsChecked(t *testing.T) {
	const (
		wait   = "wait must be a duration up to 1h"
		ttl    = "ttl must be 0s, or a duration from 1s to 168h"
		labels = "a label's name has at most 317 characters"
	)
	for name, test := range map[string]struct {
		patch, want string
	}{
		"the least": {patch: `{}`},
		"all": {patch: `{spec: {targetRef: {kind: Fleet, name: lobbies}, selector: {matchLabels: {map: desert}}, players: 10000,
			preference: {strategy: Distributed, near: {key: topology.kubernetes.io/region, value: eu}}, wait: 1h, ttl: 168h}}`},
		"labels alone":                 {patch: `{spec: {targetRef: null, selector: {matchLabels: {map: desert}}}}`},
		"nothing":                      {patch: `{spec: {targetRef: null, players: 1}}`, want: "an Allocation needs a targetRef, a selector, or both"},
		"a target without a name":      {patch: `{spec: {targetRef: {name: null}}}`, want: "name"},
		"a target in capitals":         {patch: `{spec: {targetRef: {name: Duel}}}`, want: "name must be an object's name"},
		"a target of another kind":     {patch: `{spec: {targetRef: {kind: Server}}}`, want: "Unsupported value"},
		"a selector of nothing":        {patch: `{spec: {selector: {matchLabels: {}}}}`, want: "at least 1"},
		"a label's value that is long": {patch: `{spec: {selector: {matchLabels: {a: "` + strings.Repeat("a", 64) + `"}}}}`, want: "63"},
		"a label's name that is long":  {patch: `{spec: {selector: {matchLabels: {` + strings.Repeat("a", 318) + `: b}}}}`, want: labels},
		"fewer players than none":      {patch: `{spec: {players: -1}}`, want: "greater than or equal to 0"},
		"more players than may":        {patch: `{spec: {players: 10001}}`, want: "less than or equal to 10000"},
		"a strategy that there isn't":  {patch: `{spec: {preference: {strategy: Spread}}}`, want: "Unsupported value"},
		"near a label without a name":  {patch: `{spec: {preference: {near: {value: eu}}}}`, want: "key"},
		"a wait of more than an hour":  {patch: `{spec: {wait: 61m}}`, want: wait},
		"a wait that is none":          {patch: `{spec: {wait: soon}}`, want: wait},
		"a wait of less than nothing":  {patch: `{spec: {wait: -1s}}`, want: wait},
		"a ttl of less than a second":  {patch: `{spec: {ttl: 500ms}}`, want: ttl},
		"a ttl of more than a week":    {patch: `{spec: {ttl: 169h}}`, want: ttl},
		"a field that there isn't":     {patch: `{spec: {fleet: a}}`, want: "unknown field"},
	} {
		t.Run(name, func(t *testing.T) {
			object := parse(t, allocation)
			merge(object, parse(t, test.patch))
			err := try(t, object)
			if test.want == "" && err != nil {
				t.Error(err)
			}
			if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want a refusal with %q", err, test.want)
			}
		})
	}
}

func TestAllocationChangesOnlyItsTTL(t *testing.T) {
	c, err := client.New(fixture.Config(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	object := parse(t, allocation)
	merge(object, parse(t, `{metadata: {name: changed}, spec: {selector: {matchLabels: {map: desert}}}}`))
	u := &unstructured.Unstructured{Object: object}
	if err := c.Create(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(t.Context(), u) })
	want := parse(t, `{targetRef: {kind: GameType, name: duel}, selector: {matchLabels: {map: desert}}, players: 0,
		preference: {strategy: Packed}, wait: 0s, ttl: 0s}`)
	if diff := cmp.Diff(text(t, want), text(t, u.Object["spec"])); diff != "" {
		t.Errorf("the spec and its defaults (-want +got):\n%s", diff)
	}
	for patch, refusal := range map[string]string{
		`{spec: {ttl: 2h}}`:                                "",
		`{spec: {targetRef: {name: other}}}`:               "targetRef can't be changed",
		`{spec: {targetRef: null}}`:                        "targetRef can't be changed",
		`{spec: {selector: {matchLabels: {map: sea}}}}`:    "selector can't be changed",
		`{spec: {players: 1}}`:                             "players can't be changed",
		`{spec: {preference: {strategy: Distributed}}}`:    "preference can't be changed",
		`{spec: {preference: {near: {key: a, value: b}}}}`: "preference can't be changed",
		`{spec: {wait: 30s}}`:                              "wait can't be changed",
	} {
		changed := u.DeepCopy()
		merge(changed.Object, parse(t, patch))
		err := c.Update(t.Context(), changed, client.DryRunAll)
		if refusal == "" && err != nil || refusal != "" && (err == nil || !strings.Contains(err.Error(), refusal)) {
			t.Errorf("%s: got %v, want a refusal with %q", patch, err, refusal)
		}
	}
}
