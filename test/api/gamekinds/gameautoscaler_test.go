package gamekinds_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"dormouse.dev/dormouse/test/api/fixture"
)

const gameAutoscaler = `
apiVersion: dormouse.dev/v1alpha1
kind: GameAutoscaler
metadata: {name: duel, namespace: default}
spec: {targetRef: {name: duel}, maxReplicas: 10, policies: [{name: load, activePlayers: {}}]}
`

func TestGameAutoscalerIsChecked(t *testing.T) {
	const (
		oneKind  = "a policy needs exactly one of webhook, activePlayers, buffer, schedule and forecast"
		oneOf    = "a webhook needs either url or service"
		badURL   = "url must be an http or https URL without a user or a '#'"
		oneRoom  = "a buffer needs either servers or playerSlots"
		servers  = "servers must be a number from 1 to 10000, or a percentage from 1% to 99%"
		slots    = "playerSlots must be a number from 1 to 10000000, or a percentage from 1% to 99%"
		badCron  = "cron must have five fields with one space between them"
		badZone  = "timeZone must be a name of the IANA database"
		opens    = "duration must be a duration from 1m to 168h"
		interval = "interval must be a duration from 1s to 1h"
		timeout  = "timeout must be a duration from 100ms to 30s"
		window   = "stabilizationWindow must be a duration up to 1h"
		cooldown = "cooldown must be a duration up to 24h"
	)
	// one is an autoscaler with one policy.
	one := func(policy string) string { return `{spec: {policies: [{name: one, ` + policy + `}]}}` }
	tests := map[string]struct {
		patch, want string
	}{
		"the least": {patch: `{}`},
		"all": {patch: `{spec: {targetRef: {apiVersion: dormouse.dev/v1alpha1, kind: Fleet, name: lobbies}, minReplicas: 2, maxReplicas: 10000, sync: {interval: 10s},
			behavior: {scaleUp: {cooldown: 30s, stabilizationWindow: 10s, maxStep: 4}, scaleDown: {cooldown: 0s, stabilizationWindow: 1h, maxStep: 1}}, policies: [
			{name: ask, webhook: {url: "https://scaler.example.com:8443/scale?fast=1", caBundle: aGk=, timeout: 100ms, format: Agones}},
			{name: ask-service, webhook: {service: {name: scaler, namespace: tools, port: 8080, path: /v1/scale}}},
			{name: load, activePlayers: {scaleOutAbovePercent: 90, scaleInBelowPercent: 10, maxPlayersPerServer: 16, step: 2, from: FirstPlayer}},
			{name: spare, buffer: {servers: 20%, minReplicas: 0, maxReplicas: 6, scaleDownDelay: 10m}},
			{name: room, buffer: {playerSlots: 64}},
			{name: evening, schedule: {cron: "0 18 * * FRI-SUN", timeZone: Europe/Berlin, duration: 5h, replicas: 4, wake: true}},
			{name: usual, forecast: {wake: true, lead: 10m, percentile: 90, minConfidencePercent: 50, minWeeks: 3, timeZone: Europe/Berlin}}]}}`},

		"no target":                          {patch: `{spec: {targetRef: null}}`, want: "targetRef"},
		"a target without a name":            {patch: `{spec: {targetRef: {name: null}}}`, want: "name"},
		"a target in capitals":               {patch: `{spec: {targetRef: {name: Duel}}}`, want: "name must be an object's name"},
		"a target of another kind":           {patch: `{spec: {targetRef: {kind: Deployment}}}`, want: "Unsupported value"},
		"a target of another group":          {patch: `{spec: {targetRef: {apiVersion: apps/v1}}}`, want: "apiVersion must be dormouse.dev/v1alpha1"},
		"no most":                            {patch: `{spec: {maxReplicas: null}}`, want: "maxReplicas"},
		"a most of none":                     {patch: `{spec: {maxReplicas: 0}}`, want: "greater than or equal to 1"},
		"too large a most":                   {patch: `{spec: {maxReplicas: 10001}}`, want: "less than or equal to 10000"},
		"a least of none":                    {patch: `{spec: {minReplicas: 0}}`, want: "greater than or equal to 1"},
		"a least that is the most":           {patch: `{spec: {minReplicas: 10}}`},
		"a least above the most":             {patch: `{spec: {minReplicas: 11}}`, want: "minReplicas must not be above maxReplicas"},
		"no policies":                        {patch: `{spec: {policies: []}}`, want: "at least 1 items"},
		"too many policies":                  {patch: `{spec: {policies: [` + strings.Repeat(`{name: a, activePlayers: {}},`, 17) + `]}}`, want: "at most 16 items"},
		"two policies of a name":             {patch: `{spec: {policies: [{name: a, activePlayers: {}}, {name: a, buffer: {servers: 1}}]}}`, want: "Duplicate value"},
		"a policy without a name":            {patch: `{spec: {policies: [{activePlayers: {}}]}}`, want: "name"},
		"a policy's name in capitals":        {patch: `{spec: {policies: [{name: Load, activePlayers: {}}]}}`, want: "name must be lower case letters"},
		"a policy that says nothing":         {patch: `{spec: {policies: [{name: a}]}}`, want: oneKind},
		"a policy of two kinds":              {patch: one(`activePlayers: {}, buffer: {servers: 1}`), want: oneKind},
		"a policy of an unknown kind":        {patch: one(`magic: {}`), want: "unknown field"},
		"an interval of less than a second":  {patch: `{spec: {sync: {interval: 500ms}}}`, want: interval},
		"an interval of more than an hour":   {patch: `{spec: {sync: {interval: 61m}}}`, want: interval},
		"an interval that is none":           {patch: `{spec: {sync: {interval: often}}}`, want: interval},
		"a cooldown of more than a day":      {patch: `{spec: {behavior: {scaleUp: {cooldown: 25h}}}}`, want: cooldown},
		"a cooldown that is none":            {patch: `{spec: {behavior: {scaleDown: {cooldown: -1s}}}}`, want: cooldown},
		"a window of more than an hour, up":  {patch: `{spec: {behavior: {scaleUp: {stabilizationWindow: 61m}}}}`, want: window},
		"a window of more than an hour down": {patch: `{spec: {behavior: {scaleDown: {stabilizationWindow: 61m}}}}`, want: window},
		"a step of none":                     {patch: `{spec: {behavior: {scaleDown: {maxStep: 0}}}}`, want: "greater than or equal to 1"},

		"a webhook that is nowhere":          {patch: one(`webhook: {}`), want: oneOf},
		"a webhook that is in two places":    {patch: one(`webhook: {url: "https://a.b", service: {name: a, port: 80}}`), want: oneOf},
		"a webhook by an address":            {patch: one(`webhook: {url: "http://[fd00::1]:8080/scale"}`)},
		"a webhook without a path":           {patch: one(`webhook: {url: "https://scaler.games.svc"}`)},
		"a webhook that is no URL":           {patch: one(`webhook: {url: scaler}`), want: badURL},
		"a webhook over something else":      {patch: one(`webhook: {url: "ftp://scaler.games.svc/"}`), want: badURL},
		"a webhook with a user":              {patch: one(`webhook: {url: "https://me:secret@scaler.games.svc/"}`), want: badURL},
		"a webhook with a fragment":          {patch: one(`webhook: {url: "https://scaler.games.svc/#top"}`), want: badURL},
		"a webhook with a space":             {patch: one(`webhook: {url: "https://scaler.games.svc/a b"}`), want: badURL},
		"a caBundle without TLS":             {patch: one(`webhook: {url: "http://scaler.games.svc/", caBundle: aGk=}`), want: "caBundle needs a url that starts with https://"},
		"a caBundle that is no base64":       {patch: one(`webhook: {url: "https://scaler.games.svc/", caBundle: "-----"}`), want: "caBundle"},
		"a Service without a port":           {patch: one(`webhook: {service: {name: scaler}}`), want: "port"},
		"a Service's port that is none":      {patch: one(`webhook: {service: {name: scaler, port: 65536}}`), want: "less than or equal to 65535"},
		"a Service's name that is none":      {patch: one(`webhook: {service: {name: scaler.games, port: 80}}`), want: "name must be the name of a Service"},
		"a Service's path without a '/'":     {patch: one(`webhook: {service: {name: scaler, port: 80, path: scale}}`), want: "path must start with '/'"},
		"a Service's namespace that is none": {patch: one(`webhook: {service: {name: scaler, port: 80, namespace: Games}}`), want: "namespace must be a namespace's name"},
		"a timeout that is too short":        {patch: one(`webhook: {url: "https://a.b", timeout: 99ms}`), want: timeout},
		"a timeout that is too long":         {patch: one(`webhook: {url: "https://a.b", timeout: 31s}`), want: timeout},
		"an unknown format":                  {patch: one(`webhook: {url: "https://a.b", format: agones}`), want: "Unsupported value"},

		"bounds of the load that meet":             {patch: one(`activePlayers: {scaleOutAbovePercent: 50, scaleInBelowPercent: 50}`), want: "scaleInBelowPercent must be below scaleOutAbovePercent"},
		"an upper bound below the default's lower": {patch: one(`activePlayers: {scaleOutAbovePercent: 20}`), want: "scaleInBelowPercent must be below scaleOutAbovePercent"},
		"a load above all":                         {patch: one(`activePlayers: {scaleOutAbovePercent: 101}`), want: "less than or equal to 100"},
		"Servers for nobody":                       {patch: one(`activePlayers: {maxPlayersPerServer: 0}`), want: "greater than or equal to 1"},
		"a step of nothing":                        {patch: one(`activePlayers: {step: 0}`), want: "greater than or equal to 1"},
		"a beginning that is none":                 {patch: one(`activePlayers: {from: Tomorrow}`), want: "Unsupported value"},

		"a buffer of nothing":            {patch: one(`buffer: {}`), want: oneRoom},
		"a buffer of both":               {patch: one(`buffer: {servers: 1, playerSlots: 1}`), want: oneRoom},
		"a buffer of no Servers":         {patch: one(`buffer: {servers: 0}`), want: servers},
		"a buffer of less than none":     {patch: one(`buffer: {servers: -1}`), want: servers},
		"a buffer of nearly all":         {patch: one(`buffer: {servers: 99%}`)},
		"a buffer of all":                {patch: one(`buffer: {servers: 100%}`), want: "servers"},
		"a buffer of no percent":         {patch: one(`buffer: {servers: 0%}`), want: servers},
		"a buffer in words of a number":  {patch: one(`buffer: {servers: "3"}`), want: servers},
		"room for nobody":                {patch: one(`buffer: {playerSlots: 0}`), want: slots},
		"room for too many":              {patch: one(`buffer: {playerSlots: 10000001}`), want: slots},
		"a floor above the ceiling":      {patch: one(`buffer: {servers: 1, minReplicas: 3, maxReplicas: 2}`), want: "the buffer's minReplicas must not be above its maxReplicas"},
		"a delay of more than a day":     {patch: one(`buffer: {servers: 1, scaleDownDelay: 25h}`), want: "scaleDownDelay must be a duration up to 24h"},
		"a schedule without a cron":      {patch: one(`schedule: {duration: 1h, replicas: 1}`), want: "cron"},
		"a schedule without a duration":  {patch: one(`schedule: {cron: "0 18 * * *", replicas: 1}`), want: "duration"},
		"a schedule of no Servers":       {patch: one(`schedule: {cron: "0 18 * * *", duration: 1h, replicas: 0}`), want: "greater than or equal to 1"},
		"a schedule of four fields":      {patch: one(`schedule: {cron: "0 18 * *  ", duration: 1h, replicas: 1}`), want: badCron},
		"a schedule with seconds":        {patch: one(`schedule: {cron: "0 0 18 * * *", duration: 1h, replicas: 1}`), want: badCron},
		"a schedule by a nickname":       {patch: one(`schedule: {cron: "@midnights", duration: 1h, replicas: 1}`), want: badCron},
		"a schedule of a last day":       {patch: one(`schedule: {cron: "0 18 L * *", duration: 1h, replicas: 1}`), want: badCron},
		"a window of less than a minute": {patch: one(`schedule: {cron: "0 18 * * *", duration: 59s, replicas: 1}`), want: opens},
		"a window of more than a week":   {patch: one(`schedule: {cron: "0 18 * * *", duration: 169h, replicas: 1}`), want: opens},
		"a forecast with nothing said":   {patch: one(`forecast: {}`)},
		"a lead of more than an hour":    {patch: one(`forecast: {lead: 61m}`), want: "lead must be a duration up to 1h"},
		"a percentile of nothing":        {patch: one(`forecast: {percentile: 0}`), want: "greater than or equal to 1"},
		"a confidence above all":         {patch: one(`forecast: {minConfidencePercent: 101}`), want: "less than or equal to 100"},
		"more weeks than are remembered": {patch: one(`forecast: {minWeeks: 7}`), want: "less than or equal to 6"},
		"a forecast in no zone":          {patch: one(`forecast: {timeZone: Local}`), want: badZone},
		"a zone of three parts":          {patch: one(`schedule: {cron: "0 18 * * *", timeZone: America/Argentina/Buenos_Aires, duration: 1h, replicas: 1}`)},
		"a zone with a number":           {patch: one(`schedule: {cron: "0 18 * * *", timeZone: Etc/GMT+5, duration: 1h, replicas: 1}`)},
		"the operator's own zone":        {patch: one(`schedule: {cron: "0 18 * * *", timeZone: Local, duration: 1h, replicas: 1}`), want: badZone},
		"a zone that is a path":          {patch: one(`schedule: {cron: "0 18 * * *", timeZone: ../../etc/passwd, duration: 1h, replicas: 1}`), want: badZone},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			object := parse(t, gameAutoscaler)
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

// The API server fills in what the comments of the fields promise.
func TestGameAutoscalerHasItsDefaults(t *testing.T) {
	c, err := client.New(fixture.Config(t), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	object := parse(t, gameAutoscaler)
	merge(object, parse(t, `{metadata: {name: defaults}, spec: {policies: [{name: load, activePlayers: {}}, {name: ask, webhook: {service: {name: a, port: 80}}},
		{name: spare, buffer: {servers: 1}}, {name: evening, schedule: {cron: "0 18 * * *", duration: 1h, replicas: 1}}, {name: usual, forecast: {}}]}}`))
	u := &unstructured.Unstructured{Object: object}
	if err := c.Create(t.Context(), u, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	want := parse(t, `{
		targetRef: {apiVersion: dormouse.dev/v1alpha1, kind: GameType, name: duel}, minReplicas: 1, maxReplicas: 10, sync: {interval: 30s},
		behavior: {scaleUp: {cooldown: 0s, stabilizationWindow: 0s}, scaleDown: {cooldown: 60s, stabilizationWindow: 300s}}, policies: [
		{name: load, activePlayers: {scaleOutAbovePercent: 80, scaleInBelowPercent: 30, step: 1, from: Start}},
		{name: ask, webhook: {service: {name: a, port: 80, path: /scale}, timeout: 5s, format: Dormouse}},
		{name: spare, buffer: {servers: 1, scaleDownDelay: 0s}},
		{name: evening, schedule: {cron: "0 18 * * *", timeZone: UTC, duration: 1h, replicas: 1}},
		{name: usual, forecast: {percentile: 80, minConfidencePercent: 50, minWeeks: 2, timeZone: UTC}}]}`)
	if diff := cmp.Diff(text(t, want), text(t, u.Object["spec"])); diff != "" {
		t.Errorf("the spec (-want +got):\n%s", diff)
	}
}

// text is a value as YAML, with its keys in order.
func text(t *testing.T, value any) string {
	t.Helper()
	content, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
