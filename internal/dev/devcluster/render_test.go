package devcluster

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// pathsIn finds the paths below dir in a command line's argument.
func pathsIn(dir, arg string) []string {
	if at := strings.Index(arg, dir); at >= 0 {
		return []string{arg[at:]}
	}
	return nil
}

func TestEveryNodesConfigurationIsItsOwn(t *testing.T) {
	c := testCluster(t)
	for _, key := range []string{"cgroupRoot", "tlsCertFile", "resolvConf"} {
		if one, two := c.kubeletConfig(1)[key], c.kubeletConfig(2)[key]; one == two {
			t.Errorf("both kubelets have %s %v", key, one)
		}
	}
	seen := map[string]bool{}
	for _, comp := range c.components() {
		if seen[comp.name] {
			t.Errorf("two components are called %s", comp.name)
		}
		seen[comp.name] = true
	}
}

func TestNothingVerifiesLessThanItCan(t *testing.T) {
	c := testCluster(t)
	files, err := c.files()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, comp := range c.components() {
		all = append(all, comp.argv...)
	}
	for _, content := range files {
		all = append(all, string(content))
	}
	for _, word := range []string{"insecure-skip", "http://", "AlwaysAllow"} {
		if at := slices.IndexFunc(all, func(s string) bool { return strings.Contains(s, word) }); at >= 0 {
			t.Errorf("found %q in %s", word, all[at])
		}
	}
}

func TestThePodNetworkHasARangeForEachFamily(t *testing.T) {
	c := testCluster(t)
	content, err := c.cniConfig(2).encodeJSON()
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Plugins []struct {
			Type string
			IPAM struct{ Ranges [][]struct{ Subnet string } }
		}
	}
	if err := json.Unmarshal(content, &config); err != nil {
		t.Fatal(err)
	}
	ranges := config.Plugins[0].IPAM.Ranges
	if len(ranges) != 2 || ranges[0][0].Subnet != "10.244.2.0/24" || ranges[1][0].Subnet != "fd4d:6f75:7365:f402::/64" {
		t.Errorf("ranges are %v", ranges)
	}
}

func TestConfigurationFilesAreReadBackAsTheyWereMeant(t *testing.T) {
	c := testCluster(t)
	content, err := c.kubeletConfig(1).encode()
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := yaml.UnmarshalStrict(content, &got); err != nil {
		t.Fatal(err)
	}
	// Left out, each of these has a default that breaks the cluster.
	for key, want := range map[string]any{"failCgroupV1": false, "oomScoreAdj": 0.0, "localStorageCapacityIsolation": false} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
}

func TestANodesMountsNeverTouchTheHost(t *testing.T) {
	c := testCluster(t)
	script := c.mountScript(1)
	if !strings.HasPrefix(script, "set -e\n") {
		t.Error("the script goes on after a mount that failed")
	}
	for _, comp := range c.components() {
		if comp.holder && !slices.Contains(comp.argv, "--propagation=private") {
			t.Errorf("%s shares its mounts with the host", comp.name)
		}
	}
}
