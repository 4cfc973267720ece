package elasticservice_test

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// minimal is the least that an ElasticService says.
const minimal = `
apiVersion: dormouse.dev/v1alpha1
kind: ElasticService
metadata: {name: lobby, namespace: default}
spec:
  service: lobby
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: lobby}
`

// parse reads YAML.
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

// try creates the minimal object with a patch over it, without keeping it.
func try(t *testing.T, patch string) (*unstructured.Unstructured, error) {
	t.Helper()
	content := parse(t, minimal)
	merge(content, parse(t, patch))
	u := &unstructured.Unstructured{Object: content}
	strict := client.WithFieldValidation(cluster.client, metav1.FieldValidationStrict)
	return u, strict.Create(t.Context(), u, client.DryRunAll)
}

func spec(text string) string { return "spec: " + text }

func probe(text string) string {
	return "spec: {ports: [{name: web, protocol: http, asleep: {probes: [" + text + "]}}]}"
}

func awake(windows string) string { return "spec: {awake: [" + windows + "]}" }

func trigger(text string) string { return "spec: {idle: {triggers: [" + text + "]}}" }

// prometheus has a trigger of that type, and settings of its own.
func prometheus(text string) string { return trigger("{type: prometheus, prometheus: {" + text + "}}") }

func manyHeaders(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{name: X-%d, key: a},", i)
	}
	return b.String()
}

func TestWhatAnElasticServiceCanNotBeIsRefusedWithWhatToChange(t *testing.T) {
	t.Parallel()
	const port, duration = "name: game", "must be a duration from 1s to "
	for name, c := range map[string]struct {
		patch string
		want  string
	}{
		"no spec":                            {`spec: null`, "spec: Required value"},
		"an unknown field":                   {spec(`{sleepafter: 1m}`), `unknown field "spec.sleepafter"`},
		"a name of 64 characters":            {`metadata: {name: ` + strings.Repeat("a", 64) + `}`, "metadata.name must have at most 63 characters"},
		"no service":                         {spec(`{service: null}`), "spec.service: Required value"},
		"an empty service":                   {spec(`{service: ""}`), "spec.service"},
		"a service in capitals":              {spec(`{service: Lobby}`), "service must be the name of a Service: lower case letters"},
		"a service of another namespace":     {spec(`{service: games/lobby}`), "service must be the name of a Service"},
		"a service that begins with a digit": {spec(`{service: 1lobby}`), "starting with a letter"},
		"a service that ends in a dash":      {spec(`{service: lobby-}`), "service must be the name of a Service"},
		"a service of 64 characters":         {spec(`{service: ` + strings.Repeat("a", 64) + `}`), "may not be more than 63"},
		"a service that is a number":         {spec(`{service: 7}`), "must be of type string"},

		"no scaleTargetRef":             {spec(`{scaleTargetRef: null}`), "spec.scaleTargetRef: Required value"},
		"no apiVersion":                 {spec(`{scaleTargetRef: {apiVersion: null}}`), "spec.scaleTargetRef.apiVersion: Required value"},
		"an empty apiVersion":           {spec(`{scaleTargetRef: {apiVersion: ""}}`), "spec.scaleTargetRef.apiVersion"},
		"an apiVersion without version": {spec(`{scaleTargetRef: {apiVersion: apps}}`), "apiVersion must be a group and a version such as apps/v1"},
		"an apiVersion of three parts":  {spec(`{scaleTargetRef: {apiVersion: a/b/v1}}`), "apiVersion must be a group and a version"},
		"a long apiVersion":             {spec(`{scaleTargetRef: {apiVersion: ` + strings.Repeat("a", 260) + `/v1}}`), "may not be more than 253"},
		"no kind":                       {spec(`{scaleTargetRef: {kind: null}}`), "spec.scaleTargetRef.kind: Required value"},
		"an empty kind":                 {spec(`{scaleTargetRef: {kind: ""}}`), "spec.scaleTargetRef.kind"},
		"a kind in lower case":          {spec(`{scaleTargetRef: {kind: deployments}}`), "kind must be a kind's name in CamelCase such as Deployment"},
		"a long kind":                   {spec(`{scaleTargetRef: {kind: ` + strings.Repeat("A", 64) + `}}`), "may not be more than 63"},
		"no target's name":              {spec(`{scaleTargetRef: {name: null}}`), "spec.scaleTargetRef.name: Required value"},
		"an empty target's name":        {spec(`{scaleTargetRef: {name: ""}}`), "spec.scaleTargetRef.name"},
		"a target's name with a slash":  {spec(`{scaleTargetRef: {name: a/b}}`), "name must be an object's name"},
		"a long target's name":          {spec(`{scaleTargetRef: {name: ` + strings.Repeat("a", 254) + `}}`), "may not be more than 253"},

		"an autoscaler without a kind":         {spec(`{autoscaler: {name: a}}`), "spec.autoscaler.kind: Required value"},
		"an autoscaler without a name":         {spec(`{autoscaler: {kind: hpa}}`), "spec.autoscaler.name: Required value"},
		"an autoscaler of an unknown kind":     {spec(`{autoscaler: {kind: vpa, name: a}}`), `supported values: "hpa", "keda"`},
		"an autoscaler of another namespace":   {spec(`{autoscaler: {kind: keda, name: games/lobby}}`), "name must be an object's name"},
		"an autoscaler's name in capitals":     {spec(`{autoscaler: {kind: keda, name: Lobby}}`), "name must be an object's name: lower case letters"},
		"an autoscaler's empty name":           {spec(`{autoscaler: {kind: hpa, name: ""}}`), "spec.autoscaler.name"},
		"an autoscaler's name that never ends": {spec(`{autoscaler: {kind: hpa, name: ` + strings.Repeat("a", 254) + `}}`), "may not be more than 253"},

		"minReplicas of zero":         {spec(`{minReplicas: 0}`), "should be greater than or equal to 1"},
		"negative minReplicas":        {spec(`{minReplicas: -1}`), "should be greater than or equal to 1"},
		"too many minReplicas":        {spec(`{minReplicas: 10001}`), "should be less than or equal to 10000"},
		"minReplicas beyond integers": {spec(`{minReplicas: 99999999999}`), "spec.minReplicas"},
		"minReplicas in words":        {spec(`{minReplicas: "2"}`), "must be of type integer"},

		"an empty sleepAfter":           {spec(`{sleepAfter: ""}`), "sleepAfter " + duration + "8760h"},
		"sleepAfter without a unit":     {spec(`{sleepAfter: "10"}`), "sleepAfter " + duration},
		"sleepAfter as a number":        {spec(`{sleepAfter: 10}`), "must be of type string"},
		"sleepAfter in days":            {spec(`{sleepAfter: 1d}`), "sleepAfter " + duration},
		"a negative sleepAfter":         {spec(`{sleepAfter: -5m}`), "sleepAfter " + duration},
		"sleepAfter of a moment":        {spec(`{sleepAfter: 999ms}`), "sleepAfter " + duration},
		"sleepAfter over a year":        {spec(`{sleepAfter: 8760h1s}`), "sleepAfter " + duration},
		"sleepAfter beyond durations":   {spec(`{sleepAfter: 99999999h}`), "sleepAfter " + duration},
		"sleepAfter beyond integers":    {spec(`{sleepAfter: "99999999999999999999999999h"}`), "sleepAfter " + duration},
		"sleepAfter of many characters": {spec(`{sleepAfter: ` + strings.Repeat("1s", 17) + `}`), "may not be more than 32"},
		"sleepAfter with spaces":        {spec(`{sleepAfter: "10 m"}`), "sleepAfter " + duration},

		"players of a Deployment":         {spec(`{idle: {players: true}}`), "idle.players needs a Server, a Fleet or a GameType as scaleTargetRef"},
		"players of another Fleet":        {spec(`{idle: {players: true}, scaleTargetRef: {apiVersion: agones.dev/v1, kind: Fleet, name: a}}`), "idle.players needs a Server, a Fleet or a GameType as scaleTargetRef"},
		"players of another kind":         {spec(`{idle: {players: true}, scaleTargetRef: {apiVersion: dormouse.dev/v1alpha1, kind: ElasticService, name: a}}`), "idle.players needs a Server, a Fleet or a GameType as scaleTargetRef"},
		"too many triggers":               {trigger(strings.Repeat("{type: http, http: {port: 1}},", 9)), "must have at most 8 items"},
		"a trigger without a type":        {trigger(`{http: {port: 80}}`), "type: Required value"},
		"an unknown trigger type":         {trigger(`{type: gopher, http: {port: 80}}`), `supported values: "http", "prometheus"`},
		"a trigger without settings":      {trigger(`{type: http}`), "a trigger of type http needs the field http"},
		"a trigger without a port":        {trigger(`{type: http, http: {path: /}}`), "http.port: Required value"},
		"a trigger's port of zero":        {trigger(`{type: http, http: {port: 0}}`), "should be greater than or equal to 1"},
		"a trigger's port of 65536":       {trigger(`{type: http, http: {port: 65536}}`), "should be less than or equal to 65535"},
		"a trigger's port by name":        {trigger(`{type: http, http: {port: web}}`), "must be of type integer"},
		"a path without a slash":          {trigger(`{type: http, http: {port: 80, path: status}}`), "path must start with '/' and have no spaces"},
		"an empty path":                   {trigger(`{type: http, http: {port: 80, path: ""}}`), "path must start with '/'"},
		"a path with a space":             {trigger(`{type: http, http: {port: 80, path: "/a b"}}`), "path must start with '/' and have no spaces"},
		"a path with a line's end":        {trigger(`{type: http, http: {port: 80, path: "/a\r\nHost: b"}}`), "path must start with '/' and have no spaces"},
		"a path with a bad escape":        {trigger(`{type: http, http: {port: 80, path: "/a%zz"}}`), "'%' only before two hexadecimal digits"},
		"a path with a fragment":          {trigger(`{type: http, http: {port: 80, path: "/a#b"}}`), "path must start with '/' and have no spaces, quotes or '#'"},
		"a long path":                     {trigger(`{type: http, http: {port: 80, path: /` + strings.Repeat("a", 1024) + `}}`), "may not be more than 1024"},
		"a pointer without a slash":       {trigger(`{type: http, http: {port: 80, jsonPointer: players}}`), "jsonPointer must be empty or start with '/'"},
		"a pointer in JSONPath":           {trigger(`{type: http, http: {port: 80, jsonPointer: $.players}}`), "jsonPointer must be empty or start with '/'"},
		"a pointer with a bad escape":     {trigger(`{type: http, http: {port: 80, jsonPointer: "/a~2"}}`), "'~' only in ~0 and ~1"},
		"a long pointer":                  {trigger(`{type: http, http: {port: 80, jsonPointer: /` + strings.Repeat("a", 256) + `}}`), "may not be more than 256"},
		"a threshold of zero":             {trigger(`{type: http, http: {port: 80, threshold: 0}}`), "should be greater than or equal to 1"},
		"a broken threshold":              {trigger(`{type: http, http: {port: 80, threshold: 1.5}}`), "must be of type integer"},
		"TLS without a name":              {trigger(`{type: http, http: {port: 80, tls: {}}}`), "tls needs serverName"},
		"both triggers of type http":      {trigger(`{type: http, http: {port: 80}, prometheus: {serverAddress: "http://p", query: up}}`), "the field prometheus is for a trigger of type prometheus"},
		"a Prometheus of type http":       {trigger(`{type: prometheus, http: {port: 80}}`), "a trigger of type prometheus needs the field prometheus"},
		"both of type prometheus":         {prometheus(`serverAddress: "http://p", query: up}, http: {port: 80`), "the field http is for a trigger of type http"},
		"a Prometheus without an address": {prometheus(`query: up`), "serverAddress: Required value"},
		"a Prometheus without a query":    {prometheus(`serverAddress: "http://p"`), "query: Required value"},
		"an empty query":                  {prometheus(`serverAddress: "http://p", query: ""`), "query should be at least 1 chars long"},
		"a long query":                    {prometheus(`serverAddress: "http://p", query: ` + strings.Repeat("a", 4097)), "may not be more than 4096"},
		"an address without a scheme":     {prometheus(`serverAddress: "prometheus:9090", query: up`), "serverAddress must be an http or https URL"},
		"an address of another scheme":    {prometheus(`serverAddress: "file:///etc/passwd", query: up`), "serverAddress must be an http or https URL"},
		"an address with a user":          {prometheus(`serverAddress: "http://a:b@p", query: up`), "serverAddress must be an http or https URL without a user"},
		"an address with a query":         {prometheus(`serverAddress: "http://p/?a=b", query: up`), "serverAddress must be an http or https URL"},
		"an address with a fragment":      {prometheus(`serverAddress: "http://p/#a", query: up`), "serverAddress must be an http or https URL"},
		"an address with a line's end":    {prometheus(`serverAddress: "http://p/a\r\nb", query: up`), "serverAddress must be an http or https URL"},
		"a threshold as a number":         {prometheus(`serverAddress: "http://p", query: up, threshold: 1`), "must be of type string"},
		"a threshold of 0.0":              {prometheus(`serverAddress: "http://p", query: up, threshold: "0.0"`), "threshold must be a decimal number above 0"},
		"a negative threshold":            {prometheus(`serverAddress: "http://p", query: up, threshold: "-1"`), "threshold must be a decimal number above 0"},
		"a threshold in words":            {prometheus(`serverAddress: "http://p", query: up, threshold: one`), "threshold must be a decimal number above 0"},
		"a threshold with an exponent":    {prometheus(`serverAddress: "http://p", query: up, threshold: "1e3"`), "threshold must be a decimal number above 0"},
		"an uptimeFilter in braces":       {prometheus(`serverAddress: "http://p", query: up, uptimeFilter: '{job="a"}'`), "uptimeFilter must be label matchers"},
		"TLS over http":                   {prometheus(`serverAddress: "http://p", query: up, tls: {serverName: p}`), "tls needs a serverAddress that starts with https://"},
		"a bad serverName":                {prometheus(`serverAddress: "https://p", query: up, tls: {serverName: "p q"}`), "serverName must be a host name"},
		"an authority that is no base64":  {prometheus(`serverAddress: "https://p", query: up, tls: {caBundle: "*"}`), "must be of type byte"},
		"auth without a Secret":           {prometheus(`serverAddress: "http://p", query: up, auth: {}`), "auth.secret: Required value"},
		"a header without a key":          {prometheus(`serverAddress: "http://p", query: up, auth: {secret: a, headers: [{name: X}]}`), "key: Required value"},
		"a header twice":                  {prometheus(`serverAddress: "http://p", query: up, auth: {secret: a, headers: [{name: X, key: a}, {name: X, key: b}]}`), "Duplicate value"},
		"a header with a colon":           {prometheus(`serverAddress: "http://p", query: up, auth: {secret: a, headers: [{name: "X:", key: a}]}`), "name must be a header of letters"},
		"a header of HTTP itself":         {prometheus(`serverAddress: "http://p", query: up, auth: {secret: a, headers: [{name: Transfer-Encoding, key: a}]}`), "none that HTTP itself needs"},
		"too many headers":                {prometheus(`serverAddress: "http://p", query: up, auth: {secret: a, headers: [` + manyHeaders(9) + `]}`), "must have at most 8 items"},

		"an unknown handoff":         {spec(`{handoff: Sometimes}`), `supported values: "Direct", "Never"`},
		"handoff in lower case":      {spec(`{handoff: never}`), `supported values: "Direct", "Never"`},
		"balance of direct clients":  {spec(`{balance: Packed}`), "balance needs handoff: Never"},
		"an unknown balance":         {spec(`{handoff: Never, balance: LeastConn}`), `supported values: "Spread", "Packed"`},
		"PROXY of direct clients":    {spec(`{proxyProtocol: {send: true}}`), "proxyProtocol needs handoff: Never"},
		"PROXY of nobody":            {spec(`{handoff: Never, proxyProtocol: {}}`), "proxyProtocol needs trustedCIDRs or send: true"},
		"PROXY of nobody in words":   {spec(`{handoff: Never, proxyProtocol: {send: false}}`), "proxyProtocol needs trustedCIDRs or send: true"},
		"an address that is trusted": {spec(`{handoff: Never, proxyProtocol: {trustedCIDRs: [10.0.0.1]}}`), "trustedCIDRs must be networks such as 10.0.0.0/8"},
		"a host that is trusted":     {spec(`{handoff: Never, proxyProtocol: {trustedCIDRs: [lb.example]}}`), "trustedCIDRs must be networks such as 10.0.0.0/8"},
		"nobody is trusted":          {spec(`{handoff: Never, proxyProtocol: {trustedCIDRs: []}}`), "trustedCIDRs should have at least 1 items"},
		"a network trusted twice":    {spec(`{handoff: Never, proxyProtocol: {trustedCIDRs: [10.0.0.0/8, 10.0.0.0/8]}}`), "Duplicate value"},
		"too many that are trusted":  {spec(`{handoff: Never, proxyProtocol: {trustedCIDRs: [` + manyNetworks(65) + `]}}`), "must have at most 64 items"},
		"a port without a name":      {spec(`{ports: [{protocol: tcp}]}`), "name: Required value"},
		"two ports of one name":      {spec(`{ports: [{` + port + `}, {` + port + `}]}`), "Duplicate value"},
		"too many ports":             {spec(`{ports: [` + manyPorts(65) + `]}`), "must have at most 64 items"},
		"a long port's name":         {spec(`{ports: [{name: ` + strings.Repeat("a", 64) + `}]}`), "may not be more than 63"},
		"an unknown protocol":        {spec(`{ports: [{` + port + `, protocol: gopher}]}`), `supported values: "tcp", "udp", "http", "tls", "minecraft", "bedrock", "source", "quake3"`},
		"a protocol in capitals":     {spec(`{ports: [{` + port + `, protocol: TCP}]}`), `supported values: "tcp", "udp"`},
		"a front without hosts":      {front(`hosts: []`), "should have at least 1 items"},
		"a front's host in capitals": {front(`hosts: [Play.example.com]`), "a DNS name in lower case such as play.example.com"},
		"a front's host with a port": {front(`hosts: ["play.example.com:25565"]`), "a DNS name in lower case"},
		"a host of stars":            {front(`hosts: ["**"]`), "*.example.com for all names below it"},
		"a star in the middle":       {front(`hosts: [a.*.example.com]`), "a DNS name in lower case"},
		"a host with a dot too many": {front(`hosts: [play.example.com.]`), "a DNS name in lower case"},
		"a host twice":               {front(`hosts: [a.example, a.example]`), "Duplicate value"},
		"too many hosts":             {front(`hosts: [` + manyHosts(33) + `]`), "must have at most 32 items"},
		"a long host":                {front(`hosts: [` + strings.Repeat("a", 254) + `]`), "may not be more than 253"},
		"a front of capitals":        {spec(`{front: {service: MC, hosts: [a.example]}}`), "service must be the name of a Service"},
		"a front of nothing":         {spec(`{front: {hosts: [a.example]}}`), "front.service: Required value"},
		"its own Service as a front": {spec(`{front: {service: lobby, hosts: [a.example]}}`), "front.service must be another Service than service"},
		"a front's bad namespace":    {front(`hosts: [a.example], namespace: Edge`), "namespace must be the name of a namespace"},
		"players of no rule":         {spec(`{wake: {players: {message: hi}}}`), "players needs allow, deny, allowFrom or denyFrom"},
		"players who connect":        {spec(`{wake: {when: Connect, players: {allow: [Anna]}}}`), "players needs when: Login"},
		"a player with a space":      {spec(`{wake: {players: {allow: ["An na"]}}}`), "a player must be a name of up to 16 letters, digits and underscores, or a UUID"},
		"a player of 17 letters":     {spec(`{wake: {players: {deny: [aaaaaaaaaaaaaaaaa]}}}`), "a player must be a name of up to 16 letters"},
		"half a UUID":                {spec(`{wake: {players: {deny: [069a79f4-44e9-4726-a5be]}}}`), "a player must be a name of up to 16 letters"},
		"a list without a key":       {spec(`{wake: {players: {allowFrom: {configMap: a}}}}`), "allowFrom.key: Required value"},
		"answers of tls":             {game("tls", `asleep: {}`), "asleep needs a protocol whose queries can be answered"},

		"an unknown readiness":       {spec(`{ports: [{` + port + `, readiness: Never}]}`), `supported values: "Auto", "Connect"`},
		"udp with readiness Connect": {spec(`{ports: [{` + port + `, protocol: udp, readiness: Connect}]}`), "remove it or choose Auto"},

		"bedrock with readiness Connect": {game("bedrock", `readiness: Connect`), "remove it or choose Auto"},
		"answers of tcp":                 {game("tcp", `asleep: {}`), "asleep needs a protocol whose queries can be answered"},
		"answers of udp":                 {game("udp", `asleep: {motd: a}`), "asleep needs a protocol whose queries can be answered"},
		"answers of no protocol":         {spec(`{ports: [{` + port + `, asleep: {}}]}`), "asleep needs a protocol whose queries can be answered"},
		"a picture of bedrock":           {game("bedrock", `asleep: {favicon: "data:image/png;base64,AA=="}`), "asleep.favicon and asleep.rejoin need the protocol minecraft"},
		"a disconnect of quake3":         {game("quake3", `asleep: {rejoin: later}`), "asleep.favicon and asleep.rejoin need the protocol minecraft"},
		"a protocol version of source":   {game("source", `asleep: {protocolVersion: 17}`), "asleep.protocolVersion needs the protocol minecraft, bedrock or quake3"},
		"a map of minecraft":             {game("minecraft", `asleep: {map: burrow}`), "asleep.map needs the protocol bedrock, source or quake3"},
		"a game of bedrock":              {game("bedrock", `asleep: {game: MCPE}`), "asleep.game needs the protocol source or quake3"},
		"a folder of quake3":             {game("quake3", `asleep: {folder: baseq3}`), "asleep.folder and asleep.appID need the protocol source"},
		"a Steam number of minecraft":    {game("minecraft", `asleep: {appID: 1}`), "asleep.folder and asleep.appID need the protocol source"},
		"a long message":                 {game("minecraft", `asleep: {motd: `+strings.Repeat("a", 257)+`}`), "may not be more than 256"},
		"a long waking message":          {game("minecraft", `asleep: {wakingMotd: `+strings.Repeat("a", 257)+`}`), "may not be more than 256"},
		"a long version":                 {game("minecraft", `asleep: {version: `+strings.Repeat("a", 65)+`}`), "may not be more than 64"},
		"a picture that is a link":       {game("minecraft", `asleep: {favicon: "https://example.com/a.png"}`), "favicon must be data:image/png;base64,"},
		"a picture with line ends":       {game("minecraft", `asleep: {favicon: "data:image/png;base64,AA\nAA"}`), "favicon must be data:image/png;base64,"},
		"a huge picture":                 {game("minecraft", `asleep: {favicon: "data:image/png;base64,`+strings.Repeat("A", 16384)+`"}`), "may not be more than 16384"},
		"no players at most":             {game("minecraft", `asleep: {maxPlayers: 0}`), "should be greater than or equal to 1"},
		"too many players at most":       {game("minecraft", `asleep: {maxPlayers: 2147483648}`), "asleep.maxPlayers"},
		"a protocol version of zero":     {game("quake3", `asleep: {protocolVersion: 0}`), "should be greater than or equal to 1"},
		"a Steam number beyond 32 bits":  {game("source", `asleep: {appID: 4294967296}`), "should be less than or equal to 4294967295"},
		"probes of minecraft":            {game("minecraft", `asleep: {probes: [{path: /}]}`), "asleep.probes needs the protocol http"},
		"a version of http":              {game("http", `asleep: {version: a}`), "asleep.version, protocolVersion, maxPlayers and map need the protocol of a game"},
		"a map of http":                  {game("http", `asleep: {map: a}`), "asleep.version, protocolVersion, maxPlayers and map need the protocol of a game"},
		"a picture of http":              {game("http", `asleep: {favicon: "data:image/png;base64,AA=="}`), "asleep.favicon and asleep.rejoin need the protocol minecraft"},
		"too many probes":                {game("http", `asleep: {probes: [`+strings.Repeat("{path: /},", 17)+`]}`), "must have at most 16 items"},
		"a probe without a path":         {probe(`{method: GET}`), "a probe needs one of path, pathPrefix and pathRegex"},
		"a probe with two paths":         {probe(`{path: /, pathPrefix: /}`), "a probe needs one of path, pathPrefix and pathRegex"},
		"a prefix without a slash":       {probe(`{pathPrefix: healthz}`), "pathPrefix must start with '/'"},
		"an expression that is none":     {probe(`{pathRegex: "("}`), "error parsing regexp"},
		"a long expression":              {probe(`{pathRegex: "` + strings.Repeat("a", 257) + `"}`), "may not be more than 256"},
		"a long repetition":              {probe(`{pathRegex: "^/.{0,100}$"}`), "regex must not repeat anything 100 times or more"},
		"an expression with a line":      {probe(`{pathRegex: "a\nb"}`), "regex must be of visible ASCII characters"},
		"a header's bad expression":      {probe(`{path: /, headers: [{name: a, regex: "*"}]}`), "error parsing regexp"},
		"a parameter for nothing":        {probe(`{path: /, queryParams: [{name: a}]}`), "a parameter to match needs either value or regex"},
		"a parameter without a name":     {probe(`{path: /, queryParams: [{name: "", value: b}]}`), "queryParams[0].name"},
		"too many parameters":            {probe(`{path: /, queryParams: [` + strings.Repeat("{name: a, value: b},", 9) + `]}`), "must have at most 8 items"},
		"a probe's path without a slash": {probe(`{path: healthz}`), "path must start with '/'"},
		"a probe's path with a query":    {probe(`{path: "/a?b"}`), "path must start with '/' and have no spaces, '?' or '#'"},
		"a probe's path with a space":    {probe(`{path: "/a b"}`), "path must start with '/' and have no spaces"},
		"a probe's path with a line":     {probe(`{path: "/a\r\nb"}`), "path must start with '/' and have no spaces"},
		"a long probe's path":            {probe(`{path: /` + strings.Repeat("a", 512) + `}`), "may not be more than 512"},
		"a probe by PUT":                 {probe(`{path: /, method: PUT}`), `supported values: "GET", "HEAD", "OPTIONS", "POST"`},
		"too many headers to match":      {probe(`{path: /, headers: [` + strings.Repeat("{name: a, value: b},", 9) + `]}`), "must have at most 8 items"},
		"a header to match for nothing":  {probe(`{path: /, headers: [{name: a}]}`), "a header to match needs one of value, prefix and regex"},
		"a header to match twice":        {probe(`{path: /, headers: [{name: a, value: b, prefix: b}]}`), "a header to match needs one of value, prefix and regex"},
		"a header to match with a colon": {probe(`{path: /, headers: [{name: "a:", value: b}]}`), "name must be a header's name"},
		"a value to match with a line":   {probe(`{path: /, headers: [{name: a, value: "b\nc"}]}`), "value must be of visible ASCII characters"},
		"a prefix that is a space":       {probe(`{path: /, headers: [{name: a, prefix: " "}]}`), "prefix must be of visible ASCII characters"},
		"a status that goes on":          {probe(`{path: /, response: {status: 101}}`), "should be greater than or equal to 200"},
		"a status of 600":                {probe(`{path: /, response: {status: 600}}`), "should be less than or equal to 599"},
		"a body of 204":                  {probe(`{path: /, response: {status: 204, body: a}}`), "204, 205 or 304 has no body"},
		"a long body":                    {probe(`{path: /, response: {body: ` + strings.Repeat("a", 2049) + `}}`), "may not be more than 2048"},
		"a header that says the length":  {probe(`{path: /, response: {headers: [{name: content-Length, value: "5"}]}}`), "none that says how the answer is sent"},
		"a header that says the end":     {probe(`{path: /, response: {headers: [{name: Connection, value: close}]}}`), "none that says how the answer is sent"},
		"a header that is two":           {probe(`{path: /, response: {headers: [{name: a, value: "b\r\nc: d"}]}}`), "value must be of visible ASCII characters"},
		"two headers of one name":        {probe(`{path: /, response: {headers: [{name: a, value: b}, {name: a, value: c}]}}`), "Duplicate value"},
		"an unknown moment of a wake":    {spec(`{wake: {when: Query}}`), `supported values: "Login", "Connect", "Never"`},
		"players who never wake it":      {spec(`{wake: {when: Never, players: {deny: [Hazel]}}}`), "players needs when: Login"},

		"a window without a cron":        {awake(`{duration: 1h}`), "spec.awake[0].cron: Required value"},
		"a window without a duration":    {awake(`{cron: "0 18 * * *"}`), "spec.awake[0].duration: Required value"},
		"a window of less than a minute": {awake(`{cron: "0 18 * * *", duration: 59s}`), "duration must be a duration from 1m to 168h"},
		"a window of more than a week":   {awake(`{cron: "0 18 * * *", duration: 169h}`), "duration must be a duration from 1m to 168h"},
		"a cron of four fields":          {awake(`{cron: "0 18 * *  ", duration: 1h}`), "cron must have five fields"},
		"a cron by a nickname":           {awake(`{cron: "@midnights", duration: 1h}`), "cron must have five fields"},
		"a minute that there isn't":      {awake(`{cron: "60 18 * * *", duration: 1h}`), "cron's field 1, the minute, must be * or numbers from 0 to 59"},
		"a step of no minutes":           {awake(`{cron: "*/0 18 * * *", duration: 1h}`), "cron's field 1, the minute"},
		"a list with a hole":             {awake(`{cron: "1,,2 18 * * *", duration: 1h}`), "cron's field 1, the minute"},
		"a range of three":               {awake(`{cron: "1-2-3 18 * * *", duration: 1h}`), "cron's field 1, the minute"},
		"an hour that there isn't":       {awake(`{cron: "0 18,24 * * *", duration: 1h}`), "cron's field 2, the hour, must be * or numbers from 0 to 23"},
		"a day that there isn't":         {awake(`{cron: "0 18 0 * *", duration: 1h}`), "cron's field 3, the day of the month, must be * or numbers from 1 to 31"},
		"a month that there isn't":       {awake(`{cron: "0 18 * 1-13 *", duration: 1h}`), "cron's field 4, the month, must be * or numbers from 1 to 12"},
		"a month by another's name":      {awake(`{cron: "0 18 * MAI *", duration: 1h}`), "cron's field 4, the month"},
		"a day of the week too many":     {awake(`{cron: "0 18 * * 8", duration: 1h}`), "cron's field 5, the day of the week, must be * or numbers from 0 to 7"},
		"a day by another's name":        {awake(`{cron: "0 18 * * MON-DOM", duration: 1h}`), "cron's field 5, the day of the week"},
		"a time zone that there isn't":   {awake(`{cron: "0 18 * * *", timeZone: Europe/Atlantis, duration: 1h}`), "timeZone must be a name of the IANA database"},
		"the operator's own time zone":   {awake(`{cron: "0 18 * * *", timeZone: Local, duration: 1h}`), "timeZone must be a name of the IANA database"},
		"a time zone that is a path":     {awake(`{cron: "0 18 * * *", timeZone: ../../etc/passwd, duration: 1h}`), "timeZone must be a name of the IANA database"},
		"too many windows":               {awake(strings.Repeat(`{cron: "0 18 * * *", duration: 1h},`, 17)), "must have at most 16 items"},

		"itself to be woken with":          {spec(`{wakeWith: [database, lobby]}`), "spec.wakeWith names other ElasticServices, and this is the own name; remove it"},
		"one twice to be woken with":       {spec(`{wakeWith: [database, database]}`), "Duplicate value"},
		"one of another namespace":         {spec(`{wakeWith: [shop/database]}`), "wakeWith must be names of ElasticServices"},
		"an empty name to be woken with":   {spec(`{wakeWith: [""]}`), "wakeWith"},
		"too many names to be woken with":  {spec(`{wakeWith: [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q]}`), "must have at most 16 items"},
		"too long a name to be woken with": {spec(`{wakeWith: [` + strings.Repeat("a", 64) + `]}`), "may not be more than 63"},

		"a hold's timeout of a moment":      {spec(`{hold: {timeout: 1ms}}`), "timeout " + duration + "24h"},
		"a hold's timeout over a day":       {spec(`{hold: {timeout: 25h}}`), "timeout " + duration + "24h"},
		"a negative hold's timeout":         {spec(`{hold: {timeout: -1s}}`), "timeout " + duration},
		"a hold's timeout beyond durations": {spec(`{hold: {timeout: 99999999h}}`), "timeout " + duration},
		"a hold's timeout in words":         {spec(`{hold: {timeout: long}}`), "timeout " + duration},
		"no connections":                    {spec(`{hold: {maxConnections: 0}}`), "should be greater than or equal to 1"},
		"too many connections":              {spec(`{hold: {maxConnections: 100001}}`), "should be less than or equal to 100000"},
		"too few bytes":                     {spec(`{hold: {maxBytesPerConnection: 1023}}`), "should be greater than or equal to 1024"},
		"too many bytes":                    {spec(`{hold: {maxBytesPerConnection: 1048577}}`), "should be less than or equal to 1048576"},
		"a hasty handshake":                 {spec(`{hold: {handshakeTimeout: 999ms}}`), "handshakeTimeout must be a duration from 1s to 1m"},
		"a slow handshake":                  {spec(`{hold: {handshakeTimeout: 61s}}`), "handshakeTimeout must be a duration from 1s to 1m"},
		"a handshake without a time":        {spec(`{hold: {handshakeTimeout: 0s}}`), "handshakeTimeout must be a duration from 1s to 1m"},
		"nothing of a source":               {spec(`{hold: {perSource: {}}}`), "should have at least 1 properties"},
		"no connections of a source":        {spec(`{hold: {perSource: {maxConnections: 0}}}`), "should be greater than or equal to 1"},
		"too many bytes of a source":        {spec(`{hold: {perSource: {maxBytes: 1073741825}}}`), "should be less than or equal to 1073741824"},
		"too many sessions of a source":     {spec(`{hold: {perSource: {maxSessions: 100001}}}`), "should be less than or equal to 100000"},

		"an address instead of a network": {spec(`{wake: {allowCIDRs: [192.0.2.1]}}`), "allowCIDRs must be networks such as"},
		"a host name":                     {spec(`{wake: {denyCIDRs: [example.com/24]}}`), "denyCIDRs must be networks such as"},
		"a mask that is too long":         {spec(`{wake: {denyCIDRs: [192.0.2.0/33]}}`), "denyCIDRs must be networks such as"},
		"a network twice":                 {spec(`{wake: {denyCIDRs: [192.0.2.0/24, 192.0.2.0/24]}}`), "Duplicate value"},
		"too many networks":               {spec(`{wake: {allowCIDRs: [` + networks(65) + `]}}`), "must have at most 64 items"},
		"no rate of a source":             {spec(`{wake: {perSourceRate: 0}}`), "should be greater than or equal to 1"},
		"too high a rate of a service":    {spec(`{wake: {perServiceRate: 60001}}`), "should be less than or equal to 60000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := try(t, c.patch)
			if err == nil {
				t.Fatal("it was taken")
			}
			if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
				t.Fatalf("refused with %v, want Invalid or BadRequest", err)
			}
			// The API server writes " in body" into some of its messages.
			if got := strings.ReplaceAll(err.Error(), " in body", ""); !strings.Contains(got, c.want) {
				t.Errorf("refused with %q, want %q in it", got, c.want)
			}
		})
	}
}

// game gives the port game a protocol and more.
func game(protocol, more string) string {
	return spec(`{ports: [{name: game, protocol: ` + protocol + `, ` + more + `}]}`)
}

func networks(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "192.0.%d.0/24,", i)
	}
	return b.String()
}

func manyPorts(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "{name: port-%d},", i)
	}
	return b.String()
}

func TestTheServiceOfAnElasticServiceCanNotBeChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	es := w.elastic("lobby")
	original := es.DeepCopy()
	es.Spec.Service = "arena"
	err := w.c.Patch(t.Context(), es, client.MergeFrom(original))
	if err == nil || !strings.Contains(err.Error(), "service can't be changed; delete this ElasticService and create one for the other Service") {
		t.Errorf("answered %v, want a refusal that says what to do", err)
	}
}
