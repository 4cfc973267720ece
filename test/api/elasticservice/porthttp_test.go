package elasticservice_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// web is a patch with a port of HTTP and its settings.
func web(http string) string {
	return spec(`{ports: [{name: web, protocol: http, http: ` + http + `}]}`)
}

func TestSettingsOfHTTPThatCanNotBeAreRefusedWithWhatToChange(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ patch, want string }{
		"no settings":                     {web(`{}`), "should have at least 1 properties"},
		"a page on a port of TLS":         {spec(`{ports: [{name: web, protocol: tls, http: {waitingPage: {}}}]}`), "http needs the protocol http"},
		"a page on a port of no protocol": {spec(`{ports: [{name: web, http: {waitingPage: {}}}]}`), "http needs the protocol http"},
		"a page that is no object":        {web(`{waitingPage: true}`), "must be of type object"},
		"an unknown setting of a page":    {web(`{waitingPage: {html: a}}`), `unknown field "spec.ports[0].http.waitingPage.html"`},
		"an empty title":                  {web(`{waitingPage: {title: ""}}`), "should be at least 1 chars long"},
		"a long title":                    {web(`{waitingPage: {title: ` + strings.Repeat("a", 129) + `}}`), "may not be more than 128"},
		"an empty message":                {web(`{waitingPage: {message: ""}}`), "should be at least 1 chars long"},
		"a long message":                  {web(`{waitingPage: {message: ` + strings.Repeat("a", 513) + `}}`), "may not be more than 512"},
		"a page where any connection wakes": {
			spec(`{wake: {when: Connect}, ports: [{name: a}, {name: web, protocol: http, http: {waitingPage: {}}}]}`), "http.waitingPage needs wake.when: Login",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := try(t, c.patch); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestSettingsOfHTTPAreTakenAsTheyAre(t *testing.T) {
	t.Parallel()
	for name, http := range map[string]string{
		"a page of the defaults": `{waitingPage: {}}`,
		"a header":               `{coldStartHeader: true}`,
		"a page of one's own":    `{waitingPage: {title: "Tea <time>", message: "{elapsed} so far"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			got, err := try(t, web(http))
			if err != nil {
				t.Fatal(err)
			}
			ports := got.Object["spec"].(map[string]any)["ports"].([]any)
			want := parse(t, `{name: web, protocol: http, readiness: Auto, http: `+http+`}`)
			if diff := cmp.Diff(want, normal(t, ports[0])); diff != "" {
				t.Errorf("port (-want +got):\n%s", diff)
			}
		})
	}
}
