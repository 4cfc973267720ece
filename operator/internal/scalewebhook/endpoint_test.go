package scalewebhook

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"dormouse.dev/dormouse/operator/internal/outbound"
)

func TestWhereAQuestionGoes(t *testing.T) {
	external := service("games", "external", "10.96.0.9", 80)
	external.Spec.Type, external.Spec.ExternalName = corev1.ServiceTypeExternalName, "metadata.example"
	udp := service("games", "udp", "10.96.0.8", 8000)
	udp.Spec.Ports[0].Protocol = corev1.ProtocolUDP
	cluster := services{
		"games/hook":     service("games", "hook", "10.96.0.2", 9000),
		"games/two":      service("games", "two", "10.96.0.3", 80, 8000),
		"games/six":      service("games", "six", "fd00::96", 80),
		"games/headless": service("games", "headless", "None", 80),
		"games/pending":  service("games", "pending", "", 80),
		"games/external": external,
		"games/udp":      udp,
		"others/open":    service("others", "open", "10.96.0.4", 80),
		"others/closed":  service("others", "closed", "10.96.0.5", 80),
	}
	c := newClient(t, Options{
		Addresses: outbound.Addresses{Networks: everything},
		Services: func(ctx context.Context, namespace, name string) (*corev1.Service, error) {
			if name == "unreadable" {
				return nil, errors.New("no cache")
			}
			return cluster.lookup(ctx, namespace, name)
		},
		MayUse: func(svc *corev1.Service, namespace string) bool { return svc.Name == "open" && namespace == "games" },
	})
	ca := []byte("anything")
	svc := func(namespace, name string, port int32, path string) Endpoint {
		return Endpoint{Service: &ServiceReference{Namespace: namespace, Name: name, Port: port, Path: path}}
	}
	withCA := func(e Endpoint) Endpoint { e.CABundle = ca; return e }
	for name, test := range map[string]struct {
		endpoint  Endpoint
		url, host string
		want      Reason
	}{
		"a Service":                     {endpoint: svc("", "hook", 0, ""), url: "http://10.96.0.2:9000/scale", host: "hook.games.svc"},
		"a Service with a caBundle":     {endpoint: withCA(svc("games", "hook", 9000, "/v1/size")), url: "https://10.96.0.2:9000/v1/size", host: "hook.games.svc"},
		"a path as in Agones' examples": {endpoint: svc("", "hook", 0, "scale"), url: "http://10.96.0.2:9000/scale", host: "hook.games.svc"},
		"a path that is a URL":          {endpoint: svc("", "hook", 0, "//evil.example/x?y#z"), url: "http://10.96.0.2:9000//evil.example/x?y#z", host: "hook.games.svc"},
		"a path with a query":           {endpoint: svc("", "hook", 0, "/a%2Fb?c=%20d"), url: "http://10.96.0.2:9000/a%2Fb?c=%20d", host: "hook.games.svc"},
		"a path that is escaped badly":  {endpoint: svc("", "hook", 0, "/50%"), want: BadEndpoint},
		"Agones' port of several":       {endpoint: svc("", "two", 0, ""), url: "http://10.96.0.3:8000/scale", host: "two.games.svc"},
		"IPv6":                          {endpoint: svc("", "six", 0, ""), url: "http://[fd00::96]:80/scale", host: "six.games.svc"},
		"a port that it hasn't":         {endpoint: svc("", "hook", 22, ""), want: BadEndpoint},
		"a port too large":              {endpoint: svc("", "hook", 9000+65536, ""), want: BadEndpoint},
		"a port of UDP":                 {endpoint: svc("", "udp", 8000, ""), want: BadEndpoint},
		"ExternalName":                  {endpoint: svc("", "external", 80, ""), want: NotAllowed},
		"headless":                      {endpoint: svc("", "headless", 80, ""), want: NotAllowed},
		"not yet with a ClusterIP":      {endpoint: svc("", "pending", 80, ""), want: NotAllowed},
		"missing":                       {endpoint: svc("", "missing", 80, ""), want: ServiceNotFound},
		"unreadable":                    {endpoint: svc("", "unreadable", 80, ""), want: ServiceNotFound},
		"another's that is open":        {endpoint: svc("others", "open", 80, ""), url: "http://10.96.0.4:80/scale", host: "open.others.svc"},
		"another's":                     {endpoint: svc("others", "closed", 80, ""), want: NotAllowed},
		"another's that is missing":     {endpoint: svc("others", "missing", 80, ""), want: NotAllowed},
		"neither":                       {want: BadEndpoint},
		"both":                          {endpoint: Endpoint{URL: "http://x", Service: hook()}, want: BadEndpoint},
		"a URL":                         {endpoint: Endpoint{URL: "https://x.example:8443/a?b=c"}, url: "https://x.example:8443/a?b=c"},
		"a URL without a path":          {endpoint: Endpoint{URL: "https://x.example"}, url: "https://x.example/scale"},
		"a URL with a slash":            {endpoint: Endpoint{URL: "https://x.example/"}, url: "https://x.example/"},
		"a URL with a CA":               {endpoint: withCA(Endpoint{URL: "https://x.example/a"}), url: "https://x.example/a"},
		"a plain URL with a CA":         {endpoint: withCA(Endpoint{URL: "http://x.example/a"}), want: BadEndpoint},
		"a URL with a password":         {endpoint: Endpoint{URL: "https://u:p@x.example"}, want: BadEndpoint},
		"a URL with a fragment":         {endpoint: Endpoint{URL: "https://x.example/#a"}, want: BadEndpoint},
		"a file":                        {endpoint: Endpoint{URL: "file:///etc/passwd"}, want: BadEndpoint},
		"gopher":                        {endpoint: Endpoint{URL: "gopher://x.example/1"}, want: BadEndpoint},
		"no host":                       {endpoint: Endpoint{URL: "http:///scale"}, want: BadEndpoint},
		"a port alone":                  {endpoint: Endpoint{URL: "http://:80/scale"}, want: BadEndpoint},
		"a forbidden address":           {endpoint: Endpoint{URL: "http://169.254.169.254/latest"}, want: NotAllowed},
		"no URL":                        {endpoint: Endpoint{URL: "http://a b/\x00"}, want: BadEndpoint},
	} {
		t.Run(name, func(t *testing.T) {
			to, err := c.lookup(t.Context(), "games", test.endpoint)
			if ReasonOf(err) != test.want {
				t.Fatalf("the error is %v, want %q", err, test.want)
			}
			if err == nil && (to.url.String() != test.url || to.host != test.host) {
				t.Errorf("it goes to %s at %q, want %s at %q", to.url, to.host, test.url, test.host)
			}
			if err != nil && strings.Contains(err.Error(), "u:p") {
				t.Errorf("the message has a password: %s", err)
			}
		})
	}
}

func TestAnEndpointsMistakesAreSaidBeforeAnythingIsSent(t *testing.T) {
	c := newClient(t, Options{Services: services{"games/hook": service("games", "hook", "127.0.0.1", 1)}.lookup})
	for name, e := range map[string]Endpoint{
		"a caBundle that is none": {Service: hook(), CABundle: []byte("nonsense")},
		"a format that is none":   {Service: hook(), Format: "xml"},
	} {
		if _, err := c.Ask(t.Context(), e, lobby("games")); ReasonOf(err) != BadEndpoint {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWithoutServicesThereIsNone(t *testing.T) {
	c := newClient(t, Options{})
	if _, err := c.Ask(t.Context(), Endpoint{Service: hook()}, lobby("games")); ReasonOf(err) != ServiceNotFound {
		t.Errorf("the error is %v", err)
	}
	if _, err := c.Ask(t.Context(), Endpoint{Service: &ServiceReference{Namespace: "kube-system", Name: "x"}}, lobby("games")); ReasonOf(err) != NotAllowed {
		t.Errorf("of another namespace, the error is %v", err)
	}
}

func TestTimeoutsAreBounded(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{
		0: DefaultTimeout, -1: DefaultTimeout, time.Second: time.Second, time.Hour: MaxTimeout,
	} {
		if got := (Endpoint{Timeout: timeout}).timeout(); got != want {
			t.Errorf("%v became %v, want %v", timeout, got, want)
		}
	}
}

func TestWithoutAListNoURLIsAsked(t *testing.T) {
	c := newClient(t, Options{})
	for _, url := range []string{"http://x.example", "http://192.0.2.1", "https://[2001:db8::1]:8443/scale"} {
		if _, err := c.lookup(t.Context(), "games", Endpoint{URL: url}); ReasonOf(err) != NotAllowed {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestAURLIsAskedAsItIsWritten(t *testing.T) {
	var asked string
	handler := func(w http.ResponseWriter, r *http.Request) {
		asked = r.Host + r.URL.String()
		scaleTo(8)(w, r)
	}
	open := serve(t, handler)
	secure, ca := serveTLS(t, "localhost", time.Now().Add(time.Hour), handler)
	c := newClient(t, Options{Addresses: outbound.Addresses{Networks: everything}})
	for _, test := range []struct {
		scheme, address string
		ca              []byte
	}{{"http", open, nil}, {"https", secure, ca}} {
		host := "localhost:" + test.address[strings.LastIndex(test.address, ":")+1:]
		answer, err := c.Ask(t.Context(), Endpoint{URL: test.scheme + "://" + host + "?a=b", CABundle: test.ca}, lobby("games"))
		if err != nil || answer.Replicas != 8 || asked != host+"/scale?a=b" {
			t.Errorf("%s: %+v, %v, asked %s", test.scheme, answer, err, asked)
		}
	}
}
