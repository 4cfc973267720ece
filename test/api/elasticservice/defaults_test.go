package elasticservice_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

func TestWhatAnElasticServiceCanBeIsTakenWithItsDefaults(t *testing.T) {
	t.Parallel()
	const target = `scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: lobby}`
	const hold = `hold: {timeout: 5m, maxConnections: 1000, maxBytesPerConnection: 65536, handshakeTimeout: 10s}`
	for name, c := range map[string]struct{ patch, want string }{
		"the least": {
			patch: `{}`,
			want:  `{service: lobby, ` + target + `, sleepAfter: 10m, handoff: Direct, ` + hold + `}`,
		},
		"never asleep": {
			patch: spec(`{sleepAfter: 0s}`),
			want:  `{service: lobby, ` + target + `, sleepAfter: 0s, handoff: Direct, ` + hold + `}`,
		},
		"durations of several units": {
			patch: spec(`{sleepAfter: 1h30m5s500ms, hold: {timeout: 0s}}`),
			want: `{service: lobby, ` + target + `, sleepAfter: 1h30m5s500ms, handoff: Direct,
				hold: {timeout: 0s, maxConnections: 1000, maxBytesPerConnection: 65536, handshakeTimeout: 10s}}`,
		},
		"a port and a trigger of the least": {
			patch: spec(`{ports: [{name: game}, {name: ""}], idle: {triggers: [{type: http, http: {port: 80}}]}}`),
			want: `{service: lobby, ` + target + `, sleepAfter: 10m, handoff: Direct, ` + hold + `,
				ports: [{name: game, readiness: Auto}, {name: "", readiness: Auto}],
				idle: {triggers: [{type: http, http: {port: 80, path: /, threshold: 1}}]}}`,
		},
		"a Prometheus of the least": {
			patch: prometheus(`serverAddress: "http://prometheus.monitoring.svc:9090", query: up`),
			want: `{service: lobby, ` + target + `, sleepAfter: 10m, handoff: Direct, ` + hold + `,
				idle: {triggers: [{type: prometheus, prometheus: {serverAddress: "http://prometheus.monitoring.svc:9090", query: up, threshold: "1"}}]}}`,
		},
		"a Prometheus of all, and pods over TLS": {
			patch: spec(`{idle: {triggers: [{type: prometheus, prometheus: {serverAddress: "https://[2001:db8::1]:9090/select/0/prometheus/", query: 'sum(rate(a{b="c"}[1m])) or vector(0)',
				threshold: "0.01", uptimeFilter: 'job="a",pod=~"b.*"', tls: {caBundle: YQ==, serverName: prometheus.example}, auth: {secret: a, headers: [{name: X-Scope-OrgID, key: org}]}}},
				{type: http, http: {port: 443, tls: {serverName: lobby.games.svc}, auth: {secret: b}}}]}}`),
			want: `{service: lobby, ` + target + `, sleepAfter: 10m, handoff: Direct, ` + hold + `,
				idle: {triggers: [{type: prometheus, prometheus: {serverAddress: "https://[2001:db8::1]:9090/select/0/prometheus/", query: 'sum(rate(a{b="c"}[1m])) or vector(0)',
				threshold: "0.01", uptimeFilter: 'job="a",pod=~"b.*"', tls: {caBundle: YQ==, serverName: prometheus.example}, auth: {secret: a, headers: [{name: X-Scope-OrgID, key: org}]}}},
				{type: http, http: {port: 443, path: /, threshold: 1, tls: {serverName: lobby.games.svc}, auth: {secret: b}}}]}}`,
		},
		"probes of http": {
			patch: spec(`{ports: [{name: web, protocol: http, readiness: Connect, asleep: {probes: [{path: /},
				{method: POST, path: "/a/b;c=%20(d)", headers: [{name: User-Agent, prefix: "kube-probe/"}, {name: X, value: a b}],
				response: {status: 503, headers: [{name: Content-Type, value: text/css; charset=utf-8}], body: "a\n"}}]}}]}`),
			want: `{service: lobby, ` + target + `, sleepAfter: 10m, handoff: Direct, ` + hold + `,
				ports: [{name: web, protocol: http, readiness: Connect, asleep: {
				motd: Asleep. Join to wake it up., wakingMotd: "Waking up, {elapsed} so far.", probes: [{method: GET, path: /, response: {status: 200}},
				{method: POST, path: "/a/b;c=%20(d)", headers: [{name: User-Agent, prefix: "kube-probe/"}, {name: X, value: a b}],
				response: {status: 503, headers: [{name: Content-Type, value: text/css; charset=utf-8}], body: "a\n"}}]}}]}`,
		},
		"probes by prefix, expression and query": {
			patch: spec(`{ports: [{name: web, protocol: http, asleep: {probes: [{pathPrefix: /health},
				{pathRegex: "^/v[0-9]+/(live|ready)$", headers: [{name: User-Agent, regex: "^(?i)bot"}],
				queryParams: [{name: full probe, value: a b}, {name: quiet, regex: "^$"}]}]}}]}`),
			want: `{service: lobby, ` + target + `, sleepAfter: 10m, handoff: Direct, ` + hold + `,
				ports: [{name: web, protocol: http, readiness: Auto, asleep: {
				motd: Asleep. Join to wake it up., wakingMotd: "Waking up, {elapsed} so far.", probes: [{method: GET, pathPrefix: /health, response: {status: 200}},
				{method: GET, pathRegex: "^/v[0-9]+/(live|ready)$", headers: [{name: User-Agent, regex: "^(?i)bot"}],
				queryParams: [{name: full probe, value: a b}, {name: quiet, regex: "^$"}], response: {status: 200}}]}}]}`,
		},
		"answers of the least, and those of a game": {
			patch: spec(`{wake: {}, ports: [{name: game, protocol: minecraft, asleep: {}},
				{name: query, protocol: source, asleep: {motd: zzz, wakingMotd: ahh, version: "1.2", maxPlayers: 4, map: burrow, game: Dormice, folder: mice, appID: 4294967295}}]}`),
			want: `{service: lobby, ` + target + `, sleepAfter: 10m, handoff: Direct, ` + hold + `, wake: {when: Login},
				ports: [{name: game, protocol: minecraft, readiness: Auto, asleep: {motd: Asleep. Join to wake it up., wakingMotd: "Waking up, {elapsed} so far."}},
				{name: query, protocol: source, readiness: Auto, asleep: {motd: zzz, wakingMotd: ahh, version: "1.2", maxPlayers: 4, map: burrow, game: Dormice, folder: mice, appID: 4294967295}}]}`,
		},
		"the players of a Fleet": {
			patch: spec(`{idle: {players: true}, scaleTargetRef: {apiVersion: dormouse.dev/v1alpha1, kind: Fleet, name: lobby}}`),
			want: `{service: lobby, sleepAfter: 10m, handoff: Direct, ` + hold + `, idle: {players: true},
				scaleTargetRef: {apiVersion: dormouse.dev/v1alpha1, kind: Fleet, name: lobby}}`,
		},
		"no players of a Deployment": {
			patch: spec(`{idle: {players: false}}`),
			want:  `{service: lobby, ` + target + `, sleepAfter: 10m, handoff: Direct, ` + hold + `, idle: {players: false}}`,
		},
		"everything at its upper bound": {
			patch: spec(`{service: ` + strings.Repeat("a", 63) + `, minReplicas: 10000, sleepAfter: 8760h, handoff: Never,
				scaleTargetRef: {apiVersion: argoproj.io/v1alpha1, kind: Rollout, name: lobby.green},
				ports: [{name: game, protocol: tcp, readiness: Connect}, {name: voice, protocol: udp}],
				idle: {triggers: [{type: http, http: {port: 65535, path: "/a?b=c%20d", jsonPointer: /a~1b/0, threshold: 100}}]},
				balance: Packed, proxyProtocol: {send: true, trustedCIDRs: [10.0.0.0/8, "2001:db8::/32"]},
				hold: {timeout: 24h, maxConnections: 100000, maxBytesPerConnection: 1048576, handshakeTimeout: 1m,
					perSource: {maxConnections: 100000, maxBytes: 1073741824, maxSessions: 100000}},
				wake: {when: Connect, allowCIDRs: ["0.0.0.0/0", "::/0"], denyCIDRs: ["fd00:1111:2222:3333:4444:5555:6666:7777/128"], perSourceRate: 60000, perServiceRate: 60000}}`),
			want: `{service: ` + strings.Repeat("a", 63) + `, minReplicas: 10000, sleepAfter: 8760h, handoff: Never,
				scaleTargetRef: {apiVersion: argoproj.io/v1alpha1, kind: Rollout, name: lobby.green},
				ports: [{name: game, protocol: tcp, readiness: Connect}, {name: voice, protocol: udp, readiness: Auto}],
				idle: {triggers: [{type: http, http: {port: 65535, path: "/a?b=c%20d", jsonPointer: /a~1b/0, threshold: 100}}]},
				balance: Packed, proxyProtocol: {send: true, trustedCIDRs: [10.0.0.0/8, "2001:db8::/32"]},
				hold: {timeout: 24h, maxConnections: 100000, maxBytesPerConnection: 1048576, handshakeTimeout: 1m,
					perSource: {maxConnections: 100000, maxBytes: 1073741824, maxSessions: 100000}},
				wake: {when: Connect, allowCIDRs: ["0.0.0.0/0", "::/0"], denyCIDRs: ["fd00:1111:2222:3333:4444:5555:6666:7777/128"], perSourceRate: 60000, perServiceRate: 60000}}`,
		},
		"windows of all kinds": {
			patch: awake(`{cron: "*/15 8-20/2,22 1-7 JAN-mar,12 *", timeZone: America/Argentina/Buenos_Aires, duration: 1m},
				{cron: "00 018 */2 * fri-SUN", timeZone: Etc/GMT+5, duration: 168h}, {cron: "59 23 31 12 0-7", duration: 90m}, {cron: "5/20 0 29 2 7", duration: 1h30m}`),
			want: `{service: lobby, ` + target + `, sleepAfter: 10m, handoff: Direct, ` + hold + `, awake: [
				{cron: "*/15 8-20/2,22 1-7 JAN-mar,12 *", timeZone: America/Argentina/Buenos_Aires, duration: 1m},
				{cron: "00 018 */2 * fri-SUN", timeZone: Etc/GMT+5, duration: 168h}, {cron: "59 23 31 12 0-7", timeZone: UTC, duration: 90m},
				{cron: "5/20 0 29 2 7", timeZone: UTC, duration: 1h30m}]}`,
		},
		"a wake by nobody": {
			patch: spec(`{wake: {when: Never}}`),
			want:  `{service: lobby, ` + target + `, sleepAfter: 10m, handoff: Direct, ` + hold + `, wake: {when: Never}}`,
		},
		"everything at its lower bound": {
			patch: spec(`{service: a, minReplicas: 1, sleepAfter: 1s, scaleTargetRef: {apiVersion: v1, kind: K, name: a},
				hold: {timeout: 1s, maxConnections: 1, maxBytesPerConnection: 1024, handshakeTimeout: 1s, perSource: {maxConnections: 1, maxBytes: 1024, maxSessions: 1}},
				wake: {when: Login, perSourceRate: 1, perServiceRate: 1}}`),
			want: `{service: a, minReplicas: 1, sleepAfter: 1s, handoff: Direct, scaleTargetRef: {apiVersion: v1, kind: K, name: a},
				hold: {timeout: 1s, maxConnections: 1, maxBytesPerConnection: 1024, handshakeTimeout: 1s, perSource: {maxConnections: 1, maxBytes: 1024, maxSessions: 1}},
				wake: {when: Login, perSourceRate: 1, perServiceRate: 1}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := try(t, c.patch)
			if err != nil {
				t.Fatal(err)
			}
			want := parse(t, c.want)
			// Both as JSON: numbers have one type then.
			if diff := cmp.Diff(normal(t, want), normal(t, got.Object["spec"])); diff != "" {
				t.Errorf("spec (-want +got):\n%s", diff)
			}
		})
	}
}

// manyNetworks are n networks.
func manyNetworks(n int) string {
	var list []string
	for i := range n {
		list = append(list, fmt.Sprintf("10.%d.0.0/16", i))
	}
	return strings.Join(list, ", ")
}

func normal(t *testing.T, value any) map[string]any {
	t.Helper()
	text, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, string(text))
}
