package convert

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the files that the tests compare with")

// run runs the command with what it reads, and returns what it writes.
func run(t *testing.T, in string, args ...string) (code int, out, errs string) {
	t.Helper()
	var o, e bytes.Buffer
	code = Main(args, strings.NewReader(in), &o, &e)
	return code, o.String(), e.String()
}

func TestElastiServicesBecomeElasticServices(t *testing.T) {
	code, out, errs := run(t, "", "elasti", filepath.Join("testdata", "many.yaml"))
	if code != exitOK {
		t.Errorf("it exits with %d", code)
	}
	for file, got := range map[string]string{"many.out.yaml": out, "many.err.txt": errs} {
		file = filepath.Join("testdata", file)
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}

// one is an ElastiService with more in its spec.
func one(more string) string {
	return `{apiVersion: elasti.truefoundry.com/v1alpha1, kind: ElastiService, metadata: {namespace: shop, name: web},
		spec: {service: web, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}` + more + `}}`
}

func prometheus(metadata string) string {
	return one(`, triggers: [{type: prometheus, metadata: {serverAddress: "http://p", query: up` + metadata + `}}]`)
}

// trigger is a trigger of Prometheus.
func trigger(address, query, filter string) string {
	return fmt.Sprintf(`{type: prometheus, metadata: {threshold: 1, serverAddress: %q, query: %q, uptimeFilter: %q}}`, address, query, filter)
}

func TestWhatCanNotBeConvertedIsTold(t *testing.T) {
	const missing = `kind: ElastiService
apiVersion: elasti.truefoundry.com/v1alpha1
metadata: {name: x}
spec: {}`
	for name, c := range map[string]struct {
		in, want string
	}{
		"nothing":             {"", "the input has no ElastiService of the API group elasti.truefoundry.com"},
		"another kind":        {"kind: ConfigMap\napiVersion: v1\nmetadata: {name: x}", "document 1, ConfigMap x: passed over, it is no ElastiService"},
		"another's kind":      {"kind: ElastiService\napiVersion: example.com/v1\nmetadata: {name: x}", "passed over"},
		"no YAML":             {"---\na: b\n---\n{", "document 2: it is no YAML"},
		"no object":           {"- a", "document 1: it is no object of Kubernetes"},
		"what is missing":     {missing, "document 1, ElastiService x: spec.service: it is missing"},
		"and all of it":       {missing, "document 1, ElastiService x: spec.scaleTargetRef: it must have an apiVersion, a kind and a name"},
		"another type":        {one(", cooldownPeriod: soon"), "document 1, ElastiService shop/web: spec: it can't be read"},
		"a long name":         {strings.Replace(one(""), "name: web}", "name: "+strings.Repeat("a", 64)+"}", 1), "metadata.name: it has 64 characters"},
		"another trigger":     {one(", triggers: [{type: cpu}]"), `spec.triggers[0].type: it is "cpu", and only prometheus can be converted`},
		"no query":            {one(", triggers: [{type: prometheus}]"), "spec.triggers[0].metadata: it must have a serverAddress and a query"},
		"no number":           {prometheus(", threshold: low"), `spec.triggers[0].metadata.threshold: it is "low" and must be a number`},
		"no number at all":    {prometheus(", threshold: NaN"), `spec.triggers[0].metadata.threshold: it is "NaN" and must be a number`},
		"no threshold":        {prometheus(""), "spec.triggers[0].metadata.threshold: it is 0, below which no count is"},
		"a threshold below":   {prometheus(`, threshold: "-1"`), "spec.triggers[0].metadata.threshold: it is -1, below which no count is"},
		"a tiny threshold":    {prometheus(", threshold: 1e-40"), "spec.triggers[0].metadata.threshold: it is 1e-40, which has 42 characters"},
		"an idle time below":  {one(", cooldownPeriod: -5"), "spec.cooldownPeriod: it is -5 and must be from 1 to 31536000 seconds"},
		"an endless one":      {one(", cooldownPeriod: 31536001"), "spec.cooldownPeriod: it is 31536001"},
		"replicas below":      {one(", minTargetReplicas: -1"), "spec.minTargetReplicas: it is -1 and must be from 1 to 10000"},
		"too many replicas":   {one(", minTargetReplicas: 10001"), "spec.minTargetReplicas: it is 10001"},
		"too many triggers":   {one(`, triggers: [` + strings.Repeat(trigger("http://p", "up", "up")+",", 9) + `]`), "spec.triggers: there are 9, and an ElasticService has at most 8"},
		"a long query":        {one(`, triggers: [` + trigger("http://p", strings.Repeat("a", 4097), "up") + `]`), "spec.triggers[0].metadata.query: it has 4097 characters"},
		"a filter in braces":  {one(`, triggers: [` + trigger("http://p", "up", "{a}") + `]`), "spec.triggers[0].metadata.uptimeFilter: it must be label matchers"},
		"a long filter":       {one(`, triggers: [` + trigger("http://p", "up", strings.Repeat("a", 513)) + `]`), "spec.triggers[0].metadata.uptimeFilter: it must be label matchers"},
		"an address's user":   {one(`, triggers: [` + trigger("http://me:secret@p", "up", "up") + `]`), "spec.triggers[0].metadata.serverAddress: it must be an http or https URL"},
		"an address's query":  {one(`, triggers: [` + trigger("http://p/?a=b", "up", "up") + `]`), "spec.triggers[0].metadata.serverAddress: it must be an http or https URL"},
		"no scheme":           {one(`, triggers: [` + trigger("prometheus:9090", "up", "up") + `]`), "spec.triggers[0].metadata.serverAddress: it must be an http or https URL"},
		"no port's number":    {one(`, triggers: [` + trigger("http://p:web", "up", "up") + `]`), "spec.triggers[0].metadata.serverAddress: it must be an http or https URL"},
		"a long address":      {one(`, triggers: [` + trigger("http://p/"+strings.Repeat("a", 1016), "up", "up") + `]`), "spec.triggers[0].metadata.serverAddress: it must be an http or https URL"},
		"another resource":    {strings.Replace(one(""), "Deployment", "statefulsets", 1), `spec.scaleTargetRef.kind: it is "statefulsets" and must be a kind such as Deployment`},
		"another version":     {strings.Replace(one(""), "apps/v1,", "apps/,", 1), `spec.scaleTargetRef.apiVersion: it is "apps/"`},
		"a target's bad name": {strings.Replace(one(""), "Deployment, name: web", "Deployment, name: WEB", 1), `spec.scaleTargetRef.name: it is "WEB"`},
		"a scaler's bad name": {one(", autoscaler: {type: hpa, name: A}"), `spec.autoscaler.name: it is "A", which is no object's name`},
		"another autoscaler":  {one(", autoscaler: {type: vpa, name: x}"), "spec.autoscaler: it must have the type hpa or keda"},
		"an endless duration": {one(", enabledPeriod: {duration: forever}"), `spec.enabledPeriod.duration: it is "forever"`},
	} {
		code, out, errs := run(t, c.in, "elasti", "-")
		if strings.Contains(errs, "secret@") {
			t.Errorf("%s: the password is told: %q", name, errs)
		}
		if code != exitFailed || !strings.Contains(errs, c.want) || out != "" {
			t.Errorf("%s: exit code %d, %q and the output %q; want %d, %q and none", name, code, errs, out, exitFailed, c.want)
		}
	}
	if code, out, errs := run(t, missing+"\n---\n"+one(""), "elasti"); code != exitFailed || !strings.Contains(out, "name: web") || !strings.Contains(errs, "document 1, ") {
		t.Errorf("what is good beside what isn't: exit code %d, %q, %q", code, out, errs)
	}
}

func TestWhatIsJustWithinTheBoundsIsConverted(t *testing.T) {
	const address = "https://[::1]:9090/a%20b/"
	most := trigger(address, strings.Repeat("ü", 4096), strings.Repeat("ü", 512))
	code, out, errs := run(t, one(`, cooldownPeriod: 31536000, minTargetReplicas: 10000, triggers: [`+strings.Repeat(most+",", 8)+`]`), "elasti")
	if code != exitOK || strings.Count(out, "serverAddress: "+address) != 8 || !strings.Contains(out, "sleepAfter: 8760h\n") {
		t.Errorf("exit code %d, %q and %q", code, out, errs)
	}
}

func TestWhatMeansSomethingElseIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		in, want string
	}{
		"no triggers":              {one(""), "# spec.triggers: there are none"},
		"any trigger":              {prometheus(", threshold: 1e3"), "# spec.triggers: a Prometheus in another namespace must let this one in"},
		"what KEDA needs":          {one(", autoscaler: {type: KEDA, name: web}"), "# spec.autoscaler: the operator must have the rights of config/components/keda, and the ScaledObject a minReplicaCount of 1"},
		"what an HPA needs":        {one(", autoscaler: {type: hpa, name: web}"), "# spec.autoscaler: the HorizontalPodAutoscaler must have minReplicas of 1"},
		"a schedule by the month":  {one(`, enabledPeriod: {schedule: "0 0 1 * *", duration: 8h}`), `# spec.enabledPeriod.schedule: "0 0 1 * *" isn't a minute and an hour`},
		"a rule for too much":      {one(`, probeResponse: [{path: {value: "/a b"}, response: {status: 200}}]`), "the rule is left out, and its requests wake the service"},
		"a rule's status":          {one(`, probeResponse: [{method: GET, response: {status: 600}}]`), "# spec.probeResponse[0]: the status 600 must be from 200 to 599; the rule is left out"},
		"a status before the last": {one(`, probeResponse: [{method: GET, response: {status: 101}}]`), "# spec.probeResponse[0]: the status 101 must be from 200 to 599; the rule is left out"},
		"too many rules":           {one(`, probeResponse: [` + strings.Repeat(`{response: {status: 200}},`, 17) + `]`), "# spec.probeResponse[16]: a port has 16 probes at most"},
		"what would end a comment": {one(`, enabledPeriod: {schedule: "0 0 1\nspec: x", duration: 8h}`), `# spec.enabledPeriod.schedule: "0 0 1\nspec: x" isn't`},
		"a field with a line end":  {one(`, "a\nb": 1`), `# spec.a\nb: it isn't known`},
	} {
		code, out, errs := run(t, c.in, "elasti")
		if code != exitOK || !strings.Contains(out, c.want) || !strings.Contains(errs, strings.TrimPrefix(c.want, "# ")) {
			t.Errorf("%s: exit code %d, %q and %q; want %q in both", name, code, out, errs, c.want)
		}
	}
}

func TestTheHoursToSleepInBecomeThoseToBeAwakeIn(t *testing.T) {
	utc := func(cron, duration string) windowOut { return windowOut{cron, "UTC", duration} }
	for name, c := range map[string]struct {
		schedule, duration string
		want               []windowOut
	}{
		"always":                    {"", "", nil},
		"each night":                {"0 20 * * *", "12h", []windowOut{utc("0 8 * * *", "12h")}},
		"each day":                  {"30 9 * * *", "8h", []windowOut{utc("30 17 * * *", "16h")}},
		"nights of working days":    {"0 20 * * 1-5", "12h", []windowOut{utc("0 8 * * 2,3,4,5", "12h"), utc("0 8 * * 6", "60h")}},
		"the weekend":               {"0 0 * * SAT", "48h", []windowOut{utc("0 0 * * 1", "120h")}},
		"Sunday, which is 7 too":    {"0 0 * * 7", "24h", []windowOut{utc("0 0 * * 1", "144h")}},
		"nights that touch":         {"0 0 * * 1,2", "24h", []windowOut{utc("0 0 * * 3", "120h")}},
		"nights longer than a day":  {"0 0 * * *", "25h", nil},
		"a night over the week end": {"0 20 * * 6", "12h", []windowOut{utc("0 8 * * 0", "156h")}},
	} {
		t.Run(name, func(t *testing.T) {
			var to specOut
			co := &conversion{}
			co.period(&to, &elastiPeriod{c.schedule, c.duration})
			if diff := cmp.Diff(c.want, to.Awake); diff != "" || len(co.errs) > 0 || (len(co.notes) > 0) != (c.want != nil) {
				t.Errorf("windows (-want +got):\n%s\nwith the notes %q, %v", diff, co.notes, co.errs)
			}
		})
	}
}

func TestTheCommandLine(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want int
		errs string
	}{
		"help":            {[]string{"-h"}, exitOK, "Usage: operator convert elasti"},
		"no format":       {nil, exitMisused, "Usage: operator convert elasti"},
		"another format":  {[]string{"knative"}, exitMisused, "Usage: operator convert elasti"},
		"two files":       {[]string{"elasti", "a", "b"}, exitMisused, "Usage: operator convert elasti"},
		"a flag":          {[]string{"--all"}, exitMisused, "flag provided but not defined"},
		"a file that not": {[]string{"elasti", filepath.Join(t.TempDir(), "none")}, exitFailed, "read the ElastiServices: "},
	} {
		if code, out, errs := run(t, "", c.args...); code != c.want || out != "" || !strings.Contains(errs, c.errs) {
			t.Errorf("%s: exit code %d, %q and %q; want %d and %q", name, code, out, errs, c.want, c.errs)
		}
	}
}

func TestThresholdsAreWrittenOut(t *testing.T) {
	for from, want := range map[string]string{"1e3": "1000", `"1E-2"`: "0.01", "0.5": "0.5", `"+3"`: "3"} {
		c := &conversion{}
		if got := c.threshold("x", []byte(from)); got != want || len(c.errs) > 0 {
			t.Errorf("%s becomes %q, %v; want %q", from, got, c.errs, want)
		}
	}
}

func TestTheProbesGoToAPortForHTTPWithoutTLS(t *testing.T) {
	const rules = `, probeResponse: [{method: GET, response: {status: 200}}]`
	for name, c := range map[string]struct {
		ports, want string
	}{
		"https is none":              {`{name: https, port: 443}, {name: http, port: 80}`, "    name: http\n    protocol: http\n"},
		"nor are names that have it": {`{name: https-main, port: 443}, {name: http-main, port: 80}`, "    name: http-main\n    protocol: http\n"},
		"nor what says so":           {`{name: http, port: 443, appProtocol: https}, {name: web, port: 80}`, "    name: web\n    protocol: http\n"},
		"nor is UDP":                 {`{name: http3, port: 443, protocol: UDP}, {name: web, port: 80}`, "    name: web\n    protocol: http\n"},
		"http before all others":     {`{name: http-admin, port: 81}, {name: http, port: 80}`, "    name: http\n    protocol: http\n"},
		"what says so as well":       {`{name: http-admin, port: 81}, {name: web, port: 80, appProtocol: http}`, "    name: web\n    protocol: http\n"},
		"http- before http2":         {`{name: http2, port: 81}, {name: http-main, port: 80}`, "    name: http-main\n    protocol: http\n"},
		"the first that could be":    {`{name: https, port: 443}, {name: a, port: 1}, {name: b, port: 2}`, "    name: a\n    protocol: http\n"},
		"none at all":                {`{name: https, port: 443}`, "# spec.probeResponse: the Service has no port for HTTP without TLS"},
	} {
		service := "\n---\n{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: web}, spec: {ports: [" + c.ports + "]}}"
		code, out, _ := run(t, one(rules)+service, "elasti")
		if code != exitOK || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit code %d and %q; want %q", name, code, out, c.want)
		}
	}
}

// They are what the resolver and the validation of an ElasticService take.
func TestAnExpressionRepeatsNothingTooOften(t *testing.T) {
	for pattern, taken := range map[string]bool{
		"^/.{0,99}$": true, "^/100$": true,
		"^/.{0,100}$": false, "^/a{100}$": false, "^/a{100,}$": false, "^/a{2,1000}$": false,
	} {
		if _, why := regex("path", pattern); (why == "") != taken {
			t.Errorf("%s: %q, want it taken: %v", pattern, why, taken)
		}
	}
}

func TestAnAnswerWithoutContentHasNoBody(t *testing.T) {
	for _, status := range []int32{204, 205, 304} {
		if got, why := reply(elastiProbeReply{Status: status, Body: []byte(`"ok"`)}); got.Body != "" || got.Status != status || why != "" {
			t.Errorf("%d becomes %+v, %s", status, got, why)
		}
	}
}

func TestEveryValueIsKept(t *testing.T) {
	for text, want := range map[string]string{`"a\nb"`: "a\nb", `{"a": 1}`: `{"a": 1}`, `12`: "12", ``: ""} {
		if got, why := reply(elastiProbeReply{Status: 200, Body: []byte(text)}); got.Body != want || why != "" {
			t.Errorf("the body %s becomes %q, %s; want %q", text, got.Body, why, want)
		}
	}
}
