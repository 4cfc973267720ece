package gamekinds_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"dormouse.dev/dormouse/test/api/fixture"
)

// spec is the least that a Server says.
const spec = `
template: {spec: {containers: [{name: game, image: game:1}]}}
`

const server = `
apiVersion: dormouse.dev/v1alpha1
kind: Server
metadata: {name: lobby, namespace: default}
`

const fleet = `
apiVersion: dormouse.dev/v1alpha1
kind: Fleet
metadata: {name: lobbies, namespace: default}
`

const gameType = `
apiVersion: dormouse.dev/v1alpha1
kind: GameType
metadata: {name: duel, namespace: default}
`

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var content map[string]any
	if err := yaml.Unmarshal([]byte(text), &content); err != nil {
		t.Fatalf("parse %s: %v", text, err)
	}
	return content
}

// merge lays b over a as a JSON merge patch does.
func merge(a, b map[string]any) {
	for key, value := range b {
		inner, isMap := value.(map[string]any)
		old, wasMap := a[key].(map[string]any)
		switch {
		case value == nil:
			delete(a, key)
		case isMap && wasMap:
			merge(old, inner)
		default:
			a[key] = value
		}
	}
}

// try creates an object without keeping it.
func try(t *testing.T, content map[string]any) error {
	t.Helper()
	c, err := client.New(fixture.Config(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	return client.WithFieldValidation(c, metav1.FieldValidationStrict).Create(t.Context(), u, client.DryRunAll)
}

// A Server and the templates of a Fleet and a GameType have the same spec, and so the same rules.
func TestServerSpecIsChecked(t *testing.T) {
	tests := map[string]struct {
		patch string
		// want is a part of the refusal; empty where nothing is wrong.
		want string
	}{
		"the least":               {patch: `{}`},
		"no template":             {patch: `{template: null}`, want: "template"},
		"an unknown field":        {patch: `{replica: 3}`, want: "unknown field"},
		"the host's network":      {patch: `{template: {spec: {hostNetwork: true}}}`, want: "hostNetwork isn't supported; remove it and give the port expose: HostPort"},
		"the pod's own network":   {patch: `{template: {spec: {hostNetwork: false}}}`},
		"a game container":        {patch: `{gameContainer: game}`},
		"an unknown container":    {patch: `{gameContainer: lobby}`, want: "gameContainer must be the name of a container"},
		"the sidecar's name":      {patch: `{template: {spec: {containers: [{name: dormouse-sidecar, image: game:1}]}}}`, want: "which Dormouse adds itself"},
		"the sidecar's name, too": {patch: `{template: {spec: {initContainers: [{name: dormouse-sidecar, image: game:1}]}}}`, want: "which Dormouse adds itself"},
		"ports of all kinds": {patch: `{ports: [{name: game, containerPort: 7777, protocol: UDP, expose: HostPort},
			{name: query, containerPort: 7778, protocol: TCPUDP, expose: HostPort, hostPort: 7010},
			{name: voice, protocol: UDP, expose: Passthrough}, {name: admin, containerPort: 80}]}`},
		"a port without a number":               {patch: `{ports: [{name: game}]}`, want: "containerPort is needed, except with expose: Passthrough"},
		"a passthrough port with a number":      {patch: `{ports: [{name: game, containerPort: 1, expose: Passthrough}]}`, want: "containerPort can't be set with expose: Passthrough"},
		"a host port that isn't exposed":        {patch: `{ports: [{name: game, containerPort: 1, hostPort: 7000}]}`, want: "hostPort needs expose: HostPort or Passthrough"},
		"a port of the sidecar's":               {patch: `{ports: [{name: game, containerPort: 9358}]}`, want: "ports 9357 to 9359 are the sidecar's"},
		"a port's name in capitals":             {patch: `{ports: [{name: Game, containerPort: 1}]}`, want: "name must be lower case letters"},
		"two ports of a name":                   {patch: `{ports: [{name: game, containerPort: 1}, {name: game, containerPort: 2}]}`, want: "Duplicate value"},
		"a probe on the first port":             {patch: `{players: {probe: {type: minecraft}}, ports: [{name: game, containerPort: 25565}]}`},
		"a probe on a named port":               {patch: `{players: {probe: {type: minecraft, port: game}}, ports: [{name: game, containerPort: 25565}]}`},
		"a probe on an unknown port":            {patch: `{players: {probe: {type: minecraft, port: query}}, ports: [{name: game, containerPort: 25565}]}`, want: "players.probe.port must be the name of a port in ports"},
		"a probe without a port":                {patch: `{players: {probe: {type: minecraft}}}`, want: "players.probe needs a port in ports to ask"},
		"a probe of an unknown game":            {patch: `{players: {probe: {type: doom}}, ports: [{name: game, containerPort: 1}]}`, want: "Unsupported value"},
		"a negative capacity":                   {patch: `{players: {capacity: -1}}`, want: "greater than or equal to 0"},
		"times":                                 {patch: `{health: {initialDelay: 0s, period: 1s, failureThreshold: 1}, deletion: {timeout: 30m, force: true, unreported: Denied}}`},
		"a period of no time":                   {patch: `{health: {period: 0s}}`, want: "period must be a duration from 1s to 1h"},
		"a timeout that is no time":             {patch: `{deletion: {timeout: soon}}`, want: "timeout must be a duration up to 8760h"},
		"a timeout in days":                     {patch: `{deletion: {timeout: 1d}}`, want: "timeout must be a duration up to 8760h"},
		"counters and lists":                    {patch: `{counters: {rooms: {count: 1, capacity: 5}, none: {}}, lists: {maps: {capacity: 2, values: [a, b]}, none: {}}}`},
		"a counter above its capacity":          {patch: `{counters: {rooms: {count: 6, capacity: 5}}}`, want: "count must not be above capacity"},
		"a counter without capacity":            {patch: `{counters: {rooms: {count: 1}}}`, want: "count must not be above capacity"},
		"a list above its capacity":             {patch: `{lists: {maps: {capacity: 1, values: [a, b]}}}`, want: "values must not be more than capacity"},
		"a list with a value twice":             {patch: `{lists: {maps: {capacity: 3, values: [a, a]}}}`, want: "Duplicate value"},
		"a list above a thousand":               {patch: `{lists: {maps: {capacity: 1001}}}`, want: "less than or equal to 1000"},
		"counters and lists of any good name":   {patch: `{counters: {A: {}, a-b_c.D9: {}, aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: {}}, lists: {"9": {}, aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: {}}}`},
		"a counter without a name":              {patch: `{counters: {"": {}}}`, want: "a counter's name must have from 1 to 63"},
		"a counter with a space in its name":    {patch: `{counters: {"a b": {}}}`, want: "a counter's name must have from 1 to 63"},
		"a counter with a foreign name":         {patch: `{counters: {"жук": {}}}`, want: "a counter's name must have from 1 to 63"},
		"a counter whose name ends with a dash": {patch: `{counters: {"a-": {}}}`, want: "a counter's name must have from 1 to 63"},
		"a counter whose name is too long":      {patch: `{counters: {aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: {}}}`, want: "a counter's name must have from 1 to 63"},
		"a list without a name":                 {patch: `{lists: {"": {}}}`, want: "a list's name must have from 1 to 63"},
		"a list with a space in its name":       {patch: `{lists: {"a b": {}}}`, want: "a list's name must have from 1 to 63"},
		"a list with a foreign name":            {patch: `{lists: {"жук": {}}}`, want: "a list's name must have from 1 to 63"},
		"a list whose name ends with a dash":    {patch: `{lists: {"a-": {}}}`, want: "a list's name must have from 1 to 63"},
		"a list whose name is too long":         {patch: `{lists: {aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa: {}}}`, want: "a list's name must have from 1 to 63"},
		"ports by what is spoken": {patch: `{ports: [{name: java, containerPort: 25565, protocol: minecraft}, {name: bedrock, containerPort: 19132, protocol: bedrock},
			{name: query, containerPort: 27015, protocol: source}, {name: arena, containerPort: 27960, protocol: quake3},
			{name: map, containerPort: 8123, protocol: http}, {name: admin, containerPort: 8443, protocol: tls}]}`},
		"a port that speaks an unknown protocol": {patch: `{ports: [{name: game, containerPort: 1, protocol: doom}]}`, want: "Unsupported value"},
		"a game that isn't asked":                {patch: `{players: {probe: {type: none}}}`},
		"a disk":                                 {patch: `{storage: [{name: world, mountPath: /world, size: 1Gi, onDelete: Delete}]}`},
		"a disk at no absolute path":             {patch: `{storage: [{name: world, mountPath: world, size: 1Gi}]}`, want: "mountPath must start with '/'"},
		"a disk of no size":                      {patch: `{storage: [{name: world, mountPath: /world, size: 0}]}`, want: "size must be a quantity above 0 such as 10Gi"},
		"a disk of a size that is none":          {patch: `{storage: [{name: world, mountPath: /world, size: 10GB}]}`, want: "size must be a quantity above 0 such as 10Gi"},
		"a disk of so many bytes":                {patch: `{storage: [{name: world, mountPath: /world, size: 1073741824}]}`},
		"no container":                           {patch: `{template: {spec: {containers: []}}}`, want: "template.spec.containers needs a container, which is the game"},
		"a container without an image":           {patch: `{template: {spec: {containers: [{name: game}]}}}`, want: "each container in template.spec.containers needs an image"},
		"two ports with one number": {
			patch: `{ports: [{name: game, containerPort: 7000, protocol: bedrock}, {name: query, containerPort: 7000, protocol: TCPUDP}]}`,
			want:  "two ports can't have one containerPort over the same transport protocol",
		},
		"two ports with one number over both": {patch: `{ports: [{name: game, containerPort: 7000, protocol: UDP}, {name: rcon, containerPort: 7000}]}`},
		"a disk without a size":               {patch: `{storage: [{name: world, mountPath: /world}]}`, want: "size"},
		"a container with a port of its own":  {patch: `{template: {spec: {containers: [{name: game, image: game:1, ports: [{containerPort: 1}]}]}}}`},
		"a container's field of a wrong type": {patch: `{template: {spec: {containers: [{name: game, image: 5}]}}}`, want: "must be of type string"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			content := parse(t, spec)
			merge(content, parse(t, test.patch))
			kinds := map[string]map[string]any{"server": parse(t, server), "fleet": parse(t, fleet), "gametype": parse(t, gameType)}
			kinds["server"]["spec"] = content
			kinds["fleet"]["spec"] = map[string]any{"template": map[string]any{"spec": content}}
			kinds["gametype"]["spec"] = map[string]any{"template": map[string]any{"spec": content}}
			for kind, object := range kinds {
				err := try(t, object)
				if test.want == "" && err != nil {
					t.Errorf("%s: %v", kind, err)
				}
				if test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
					t.Errorf("%s: got %v, want a refusal with %q", kind, err, test.want)
				}
			}
		})
	}
}

func TestFleetIsChecked(t *testing.T) {
	tests := map[string]struct {
		patch, want string
	}{
		"the least":                            {patch: `{}`},
		"all":                                  {patch: `{spec: {replicas: 0, scaleDown: {order: OldestFirst, policy: Delete}, scheduling: Distributed, template: {metadata: {labels: {a: b}}}}}`},
		"negative replicas":                    {patch: `{spec: {replicas: -1}}`, want: "greater than or equal to 0"},
		"too many replicas":                    {patch: `{spec: {replicas: 10001}}`, want: "less than or equal to 10000"},
		"a fixed host port for one Server":     {patch: `{spec: {template: {spec: {ports: [{name: game, containerPort: 1, expose: HostPort, hostPort: 7000}]}}}}`},
		"a fixed host port for several":        {patch: `{spec: {replicas: 2, template: {spec: {ports: [{name: game, containerPort: 1, expose: HostPort, hostPort: 7000}]}}}}`, want: "a port with a fixed hostPort is for one Server"},
		"several host ports for as many":       {patch: `{spec: {replicas: 2, template: {spec: {ports: [{name: game, containerPort: 1, expose: HostPort}]}}}}`},
		"a GameType's from an earlier version": {patch: `{spec: {replicas: 2, template: {metadata: {labels: {dormouse.dev/gametype: game}}, spec: {ports: [{name: game, containerPort: 1, expose: HostPort, hostPort: 7000}]}}}}`},
		"a probe over the other transport": {
			patch: `{spec: {template: {spec: {ports: [{name: game, containerPort: 7000}], players: {probe: {type: bedrock}}}}}}`,
			want:  "players.probe.type must fit the protocol of the port that it asks",
		},
		"a probe of a named port over the other transport": {
			patch: `{spec: {template: {spec: {ports: [{name: query, containerPort: 7001, protocol: UDP}, {name: game, containerPort: 7000, protocol: UDP}], players: {probe: {type: minecraft, port: game}}}}}}`,
			want:  "players.probe.type must fit the protocol of the port that it asks",
		},
		"probes that fit": {
			patch: `{spec: {template: {spec: {ports: [{name: game, containerPort: 7000}, {name: query, containerPort: 7001, protocol: UDP}], players: {probe: {type: source, port: query}}}}}}`,
		},
		"a probe of a number that has both": {
			patch: `{spec: {template: {spec: {ports: [{name: rcon, containerPort: 27015}, {name: game, containerPort: 27015, protocol: UDP}], players: {probe: {type: source}}}}}}`,
		},
		"a probe of the protocol that is spoken": {patch: `{spec: {template: {spec: {ports: [{name: game, containerPort: 25565, protocol: minecraft}], players: {probe: {type: minecraft}}}}}}`},
		"a probe over the other transport than is spoken over": {
			patch: `{spec: {template: {spec: {ports: [{name: game, containerPort: 25565, protocol: minecraft}], players: {probe: {type: bedrock}}}}}}`,
			want:  "players.probe.type must fit the protocol of the port that it asks",
		},
		"what only a GameType can say": {
			patch: `{spec: {template: {spec: {ports: [{name: game, containerPort: 25565, protocol: minecraft, asleep: {}}]}}}}`,
			want:  "publish, readiness, abortOnClose and asleep of a port are for the template of a GameType",
		},
		"a probe of both":      {patch: `{spec: {template: {spec: {ports: [{name: game, containerPort: 7000, protocol: TCPUDP}], players: {probe: {type: quake3}}}}}}`},
		"an unknown order":     {patch: `{spec: {scaleDown: {order: Random}}}`, want: "Unsupported value"},
		"a name that is large": {patch: `{metadata: {name: "` + strings.Repeat("a", 51) + `"}}`, want: "metadata.name must have at most 50 characters"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			object := parse(t, fleet)
			object["spec"] = map[string]any{"template": map[string]any{"spec": parse(t, spec)}}
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

// A Fleet that was made before there was a rule is scaled all the same: a wake does it.
func TestAFleetFromBeforeARuleIsScaled(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := client.New(fixture.Config(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	definition := &unstructured.Unstructured{}
	definition.SetAPIVersion("apiextensions.k8s.io/v1")
	definition.SetKind("CustomResourceDefinition")
	definition.SetName("fleets.dormouse.dev")
	template := []string{"schema", "openAPIV3Schema", "properties", "spec", "properties", "template", "properties", "spec"}
	// rule takes the rules of the template's spec away, or puts them back.
	rule := func(rules []any) (before []any) {
		t.Helper()
		if err := c.Get(ctx, client.ObjectKeyFromObject(definition), definition); err != nil {
			t.Fatal(err)
		}
		versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
		if err != nil {
			t.Fatal(err)
		}
		version, ok := versions[0].(map[string]any)
		if !ok {
			t.Fatalf("a version is a %T", versions[0])
		}
		path := append(slices.Clone(template), "x-kubernetes-validations")
		if before, _, err = unstructured.NestedSlice(version, path...); err != nil {
			t.Fatal(err)
		}
		if err := unstructured.SetNestedSlice(version, rules, path...); err != nil {
			t.Fatal(err)
		}
		if err := unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"); err != nil {
			t.Fatal(err)
		}
		if err := c.Update(ctx, definition); err != nil {
			t.Fatal(err)
		}
		return before
	}
	object := parse(t, fleet)
	object["spec"] = map[string]any{"template": map[string]any{"spec": parse(t, spec)}}
	merge(object, parse(t, `{metadata: {name: elder, namespace: default}, spec: {template: {spec: {ports: [{name: game, containerPort: 7000}], players: {probe: {type: bedrock}}}}}}`))
	elder := &unstructured.Unstructured{Object: object}
	younger := elder.DeepCopy()
	younger.SetName("younger")
	until := func(refused bool) {
		t.Helper()
		for {
			err := c.Create(ctx, younger.DeepCopy(), client.DryRunAll)
			if ctx.Err() != nil {
				t.Fatalf("the rule doesn't come or go: %v", err)
			}
			if (err != nil) == refused {
				return
			}
		}
	}
	rules := rule([]any{})
	t.Cleanup(func() { _ = c.Delete(context.WithoutCancel(ctx), elder) })
	until(false)
	if err := c.Create(ctx, elder.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	rule(rules)
	until(true)
	scale := client.RawPatch(types.MergePatchType, []byte(`{"spec": {"replicas": 3}}`))
	if err := c.Patch(ctx, elder.DeepCopy(), scale); err != nil {
		t.Errorf("its replicas can't be changed: %v", err)
	}
	if err := c.SubResource("scale").Patch(ctx, elder.DeepCopy(), scale); err != nil {
		t.Errorf("it can't be scaled: %v", err)
	}
}

// What is there is scaled: a wake is no new wish.
func TestAFixedHostPortIsNoObstacleToAWake(t *testing.T) {
	ctx := t.Context()
	c, err := client.New(fixture.Config(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for kind, manifest := range map[string]string{"Fleet": fleet, "GameType": gameType} {
		object := parse(t, manifest)
		object["spec"] = map[string]any{"template": map[string]any{"spec": parse(t, spec)}}
		merge(object, parse(t, `{metadata: {name: fixed, namespace: default}, spec: {template: {spec: {ports: [{name: game, containerPort: 7000, expose: HostPort, hostPort: 7000}]}}}}`))
		fixed := &unstructured.Unstructured{Object: object}
		if err := c.Create(ctx, fixed.DeepCopy()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Delete(context.WithoutCancel(ctx), fixed) })
		for _, replicas := range []int{0, 1, 3} {
			scale := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec": {"replicas": %d}}`, replicas))
			if err := c.SubResource("scale").Patch(ctx, fixed.DeepCopy(), scale); err != nil {
				t.Errorf("%s: scaled to %d: %v", kind, replicas, err)
			}
		}
	}
}

func TestGameTypeIsChecked(t *testing.T) {
	const (
		bothZero = "maxSurge and maxUnavailable can't both be 0"
		surge    = "maxSurge must be a number from 0 to 10000, or a percentage from 0% to 100%"
		fewer    = "maxUnavailable must be a number from 0 to 10000, or a percentage from 0% to 100%"
	)
	tests := map[string]struct {
		patch, want string
	}{
		"the least": {patch: `{}`},
		"all": {patch: `{spec: {replicas: 0, update: {strategy: Gradual, maxSurge: 2, maxUnavailable: 10%, retireAfter: 30m, progressDeadline: 0s},
			service: {type: LoadBalancer, annotations: {a: b}, skipFull: true}, scaleDown: {order: OldestFirst, policy: Delete}, scheduling: Distributed,
			sleep: {after: 90s, minReplicas: 2, players: false, triggers: [{type: http, http: {port: 80}}], handoff: Never, hold: {timeout: 30s},
				balance: Packed, proxyProtocol: {send: true, trustedCIDRs: [10.0.0.0/8]}},
			revisionHistoryLimit: 0}}`},
		"all about a port": {patch: `{spec: {template: {spec: {ports: [
			{name: game, containerPort: 25565, protocol: minecraft, readiness: Connect, asleep: {motd: Hi, favicon: "data:image/png;base64,AAAA", rejoin: Soon., protocolVersion: 769}},
			{name: voice, containerPort: 24454, protocol: UDP, publish: true}, {name: rcon, containerPort: 25575, publish: false},
			{name: web, containerPort: 80, protocol: http, abortOnClose: false, asleep: {probes: [{path: /healthz}]}}]}}}}`},
		"a front, who wakes it, and what is held": {patch: `{spec: {front: {service: mc, hosts: [play.example.com]}, wake: {when: Connect}, hold: {timeout: 30s}}}`},
		"who wakes it, twice":                     {patch: `{spec: {wake: {when: Connect}, sleep: {wake: {when: Connect}}}}`, want: "wake is there twice; keep spec.wake and remove spec.sleep.wake"},
		"texts of a port that nobody sees": {
			patch: `{spec: {template: {spec: {ports: [{name: game, containerPort: 1, protocol: minecraft, publish: false, asleep: {}}]}}}}`,
			want:  "asleep, readiness and abortOnClose need a containerPort, and no publish: false",
		},
		"texts of a protocol without": {
			patch: `{spec: {template: {spec: {ports: [{name: game, containerPort: 1, protocol: tls, asleep: {}}]}}}}`,
			want:  "asleep needs a protocol whose queries can be answered",
		},
		"texts of TCP": {
			patch: `{spec: {template: {spec: {ports: [{name: game, containerPort: 1, asleep: {}}]}}}}`,
			want:  "asleep needs a protocol whose queries can be answered",
		},
		"a connect over UDP": {
			patch: `{spec: {template: {spec: {ports: [{name: game, containerPort: 1, protocol: bedrock, readiness: Connect}]}}}}`,
			want:  "readiness Connect needs a protocol over TCP",
		},
		"a picture in another game's list": {
			patch: `{spec: {template: {spec: {ports: [{name: game, containerPort: 1, protocol: source, asleep: {favicon: "data:image/png;base64,AAAA"}}]}}}}`,
			want:  "asleep.favicon and asleep.rejoin need the protocol minecraft",
		},
		"windows in which it is awake":     {patch: `{spec: {awake: [{cron: "0 18 * * FRI-SUN", timeZone: Europe/Berlin, duration: 5h}], wake: {when: Never}}}`},
		"a window in no time zone":         {patch: `{spec: {awake: [{cron: "0 18 * * *", timeZone: Europe/Atlantis, duration: 5h}]}}`, want: "timeZone must be a name of the IANA database"},
		"a window at no hour":              {patch: `{spec: {awake: [{cron: "0 24 * * *", duration: 5h}]}}`, want: "cron's field 2, the hour"},
		"sleep with nothing said":          {patch: `{spec: {sleep: {}}}`},
		"a fixed host port for one Server": {patch: `{spec: {template: {spec: {ports: [{name: game, containerPort: 1, expose: HostPort, hostPort: 7000}]}}}}`},
		"a fixed host port for several":    {patch: `{spec: {replicas: 2, template: {spec: {ports: [{name: game, containerPort: 1, expose: HostPort, hostPort: 7000}]}}}}`, want: "a port with a fixed hostPort is for one Server"},
		"negative replicas":                {patch: `{spec: {replicas: -1}}`, want: "greater than or equal to 0"},
		"too many replicas":                {patch: `{spec: {replicas: 10001}}`, want: "less than or equal to 10000"},
		"neither surge nor unavailable":    {patch: `{spec: {update: {maxSurge: 0}}}`, want: bothZero},
		"neither of them in percent":       {patch: `{spec: {update: {maxSurge: 0%, maxUnavailable: 0%}}}`, want: bothZero},
		"neither of them to Recreate":      {patch: `{spec: {update: {strategy: Recreate, maxSurge: 0, maxUnavailable: 0}}}`},
		"only unavailable":                 {patch: `{spec: {update: {maxSurge: 0, maxUnavailable: 1}}}`},
		"a surge of all":                   {patch: `{spec: {update: {maxSurge: 100%}}}`},
		"a surge of more than all":         {patch: `{spec: {update: {maxSurge: 101%}}}`, want: surge},
		"a surge that is no percentage":    {patch: `{spec: {update: {maxSurge: half}}}`, want: surge},
		"a surge in words of a number":     {patch: `{spec: {update: {maxSurge: "3"}}}`, want: surge},
		"a negative surge":                 {patch: `{spec: {update: {maxSurge: -1}}}`, want: surge},
		"a negative unavailable":           {patch: `{spec: {update: {maxUnavailable: -1}}}`, want: fewer},
		"unavailable with a fraction":      {patch: `{spec: {update: {maxUnavailable: 5.5%}}}`, want: "maxUnavailable"},
		"an unknown strategy":              {patch: `{spec: {update: {strategy: BlueGreen}}}`, want: "Unsupported value"},
		"a retirement in days":             {patch: `{spec: {update: {retireAfter: 1d}}}`, want: "retireAfter must be a duration up to 8760h"},
		"a deadline that is no time":       {patch: `{spec: {update: {progressDeadline: soon}}}`, want: "progressDeadline must be a duration up to 8760h"},
		"a Service of an unknown type":     {patch: `{spec: {service: {type: ExternalName}}}`, want: "Unsupported value"},
		"sleep after no time":              {patch: `{spec: {sleep: {after: 10ms}}}`, want: "after must be a duration from 1s to 8760h"},
		"a wake that brings nothing":       {patch: `{spec: {sleep: {minReplicas: 0}}}`, want: "greater than or equal to 1"},
		"balance of players who go direct": {patch: `{spec: {sleep: {balance: Packed}}}`, want: "balance needs handoff: Never"},
		"PROXY of players who go direct":   {patch: `{spec: {sleep: {proxyProtocol: {send: true}}}}`, want: "proxyProtocol needs handoff: Never"},
		"a trigger without a port":         {patch: `{spec: {sleep: {triggers: [{type: http}]}}}`, want: "a trigger of type http needs the field http"},
		"a history of less than nothing":   {patch: `{spec: {revisionHistoryLimit: -1}}`, want: "greater than or equal to 0"},
		"a name as long as can be":         {patch: `{metadata: {name: "` + strings.Repeat("a", 39) + `"}}`},
		"a name that is too long":          {patch: `{metadata: {name: "` + strings.Repeat("a", 40) + `"}}`, want: "metadata.name must have at most 39 characters"},
		"a name that is none of a Service": {patch: `{metadata: {name: 2fort}}`, want: "metadata.name must be lower case letters, digits and '-', starting with a letter"},
		"a name with a dot":                {patch: `{metadata: {name: duel.v2}}`, want: "metadata.name must be lower case letters, digits and '-', starting with a letter"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			object := parse(t, gameType)
			object["spec"] = map[string]any{"template": map[string]any{"spec": parse(t, spec)}}
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
