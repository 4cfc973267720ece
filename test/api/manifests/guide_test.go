package manifests_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"dormouse.dev/dormouse/test/api/fixture"
)

var (
	yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")
	patches   = regexp.MustCompile(`(?ms)^patches:\n.*`)
	addedFlag = regexp.MustCompile(`value: (--\S+)`)
)

// A patch whose target nobody has builds, and changes nothing.
func TestThePatchesOfTheGuideChangeWhatTheySay(t *testing.T) {
	pages, err := filepath.Glob(fixture.Path("docs", "guide", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	var flags []string
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range yamlBlock.FindAllStringSubmatch(string(text), -1) {
			kustomization := block[1]
			if !patches.MatchString(kustomization) {
				continue
			}
			if !strings.Contains(kustomization, "resources:") {
				kustomization = "resources: [config/default]\n" + kustomization
			}
			patched := build(t, overlay(t, kustomization))
			if cmp.Equal(build(t, overlay(t, patches.ReplaceAllString(kustomization, ""))), patched) {
				t.Errorf("%s: a patch changes nothing:\n%s", filepath.Base(page), kustomization)
			}
			for _, flag := range addedFlag.FindAllStringSubmatch(kustomization, -1) {
				if flags = append(flags, flag[1]); !slices.ContainsFunc(patched, func(o *unstructured.Unstructured) bool { return hasFlag(o, flag[1]) }) {
					t.Errorf("%s: no container has the flag %s", filepath.Base(page), flag[1])
				}
			}
		}
	}
	want := []string{"--access-log", "--currency=EUR", "--price-cpu-hour=0.04", "--price-memory-gib-hour=0.005"}
	if slices.Sort(flags); !slices.Equal(flags, want) {
		t.Errorf("the guide adds the flags %q, want %q", flags, want)
	}
}

func hasFlag(workload *unstructured.Unstructured, flag string) bool {
	containers, _, _ := unstructured.NestedSlice(workload.Object, "spec", "template", "spec", "containers")
	for _, c := range containers {
		container, _ := c.(map[string]any)
		if args, _, _ := unstructured.NestedStringSlice(container, "args"); slices.Contains(args, flag) {
			return true
		}
	}
	return false
}
