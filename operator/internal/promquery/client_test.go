package promquery

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/outbound"
	"dormouse.dev/dormouse/operator/internal/triggerauth"
)

func TestAResultIsANumberOrTheErrorSaysWhatToChange(t *testing.T) {
	t.Parallel()
	one := func(value string) string { return `{"metric":{"pod":"a"},"value":[1700000000,"` + value + `"]}` }
	says := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    float64
		wantErr string
		reason  outbound.Reason
	}{
		"a scalar":                    {handler: answer(`{"resultType":"scalar","result":[1700000000,"2.5"]}`), want: 2.5},
		"a vector of one":             {handler: vector(one("0.01")), want: 0.01},
		"a vector of zero":            {handler: vector(one("0")), want: 0},
		"a vector is added up":        {handler: vector(one("1") + "," + one("2.5")), want: 3.5},
		"a hint about style":          {handler: says(200, `{"status":"success","infos":["PromQL info: x"],"warnings":["PromQL info: y"],"data":{"resultType":"scalar","result":[1,"1"]}}`), want: 1},
		"an empty vector":             {handler: vector(""), wantErr: `end it with "or vector(0)"`, reason: outbound.BadAnswer},
		"NaN":                         {handler: vector(one("NaN")), wantErr: "not a number (NaN)", reason: outbound.BadAnswer},
		"NaN of a scalar":             {handler: answer(`{"resultType":"scalar","result":[1,"NaN"]}`), wantErr: "not a number (NaN)", reason: outbound.BadAnswer},
		"NaN among others":            {handler: vector(one("5") + "," + one("NaN")), wantErr: "not a number (NaN)", reason: outbound.BadAnswer},
		"infinity":                    {handler: vector(one("+Inf")), wantErr: "infinite", reason: outbound.BadAnswer},
		"infinity below zero":         {handler: vector(one("-Inf")), wantErr: "infinite", reason: outbound.BadAnswer},
		"a sum that is too large":     {handler: vector(one("1e308") + "," + one("1e308")), wantErr: "infinite", reason: outbound.BadAnswer},
		"a negative number":           {handler: vector(one("3") + "," + one("-3")), wantErr: "negative", reason: outbound.BadAnswer},
		"a histogram":                 {handler: vector(`{"metric":{},"histogram":[1,{"count":"1","sum":"1","buckets":[]}]}`), wantErr: "histogram", reason: outbound.BadAnswer},
		"a range":                     {handler: answer(`{"resultType":"matrix","result":[{"metric":{},"values":[[1,"1"]]}]}`), wantErr: "is a range", reason: outbound.BadAnswer},
		"a string":                    {handler: answer(`{"resultType":"string","result":[1,"x"]}`), wantErr: `unexpected value type "string"`, reason: outbound.BadAnswer},
		"nothing":                     {handler: says(200, ``), wantErr: "doesn't answer as Prometheus does", reason: outbound.BadAnswer},
		"no data":                     {handler: says(200, `{"status":"success"}`), wantErr: "no number", reason: outbound.BadAnswer},
		"another program":             {handler: says(200, `<html>0</html>`), wantErr: "doesn't answer as Prometheus does", reason: outbound.BadAnswer},
		"a part of the result":        {handler: says(200, `{"status":"success","warnings":["store-1: no\nanswer"],"data":{"resultType":"scalar","result":[1,"0"]}}`), wantErr: "may not be complete: store-1: no answer", reason: outbound.BadAnswer},
		"an error with success":       {handler: says(200, `{"status":"error","errorType":"execution","error":"no"}`), wantErr: "can't execute the query: no", reason: outbound.BadAnswer},
		"a query that is no PromQL":   {handler: says(400, `{"status":"error","errorType":"bad_data","error":"1:4: parse error"}`), wantErr: "must be PromQL: 1:4: parse error", reason: outbound.BadAnswer},
		"a query that fails":          {handler: says(422, `{"status":"error","errorType":"execution","error":"many-to-many"}`), wantErr: "can't execute the query: many-to-many", reason: outbound.BadAnswer},
		"a query that takes too long": {handler: says(503, `{"status":"error","errorType":"timeout","error":"timed out"}`), wantErr: "server error: 503", reason: outbound.BadStatus},
		"no such path":                {handler: says(404, `not here`), wantErr: "client error: 404", reason: outbound.BadStatus},
		"no right":                    {handler: says(401, ``), wantErr: "answers 401: correct auth", reason: outbound.BadStatus},
		"a failing server":            {handler: says(500, `<html>`), wantErr: "server error: 500", reason: outbound.BadStatus},
		"an answer that breaks off": {handler: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, `{"status":"success","data":{"resultType":"scalar","result":[1,"0"]}}`)
		}, wantErr: "can't be asked: unexpected EOF", reason: outbound.Unreachable},
		"a huge body":             {handler: vector(strings.Repeat(one("1")+",", maxBody/40) + one("1")), wantErr: "more than 256 KiB", reason: outbound.BadAnswer},
		"a huge body of an error": {handler: says(400, strings.Repeat("x", 2*maxBody)), wantErr: "more than 256 KiB", reason: outbound.BadAnswer},
		"101":                     {handler: says(101, ``), wantErr: "which nobody asked for", reason: outbound.BadStatus},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer, err := newClient().Ask(t.Context(), Query{Namespace: "games", Server: serve(t, c.handler), PromQL: "players"}, time.Now())
			if c.wantErr == "" {
				if err != nil || answer.Number != c.want {
					t.Errorf("got %v, %v, want %v", answer.Number, err, c.want)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.wantErr) || outbound.ReasonOf(err) != c.reason || len(err.Error()) > 700 {
				t.Errorf("got %v, %v (%s), want an error with %q (%s)", answer.Number, err, outbound.ReasonOf(err), c.wantErr, c.reason)
			}
		})
	}
}

func TestTheQueryIsAskedAsPrometheusWantsIt(t *testing.T) {
	t.Parallel()
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil || r.URL.Path != "/select/0/prometheus/api/v1/query" || r.Form.Get("query") != `sum(rate(a{b="c d"}[1m]))` || r.Form.Get("timeout") != "2s" {
			http.Error(w, "unexpected", http.StatusTeapot)
			return
		}
		vector(`{"metric":{},"value":[1,"1"]}`)(w, r)
	})
	q := Query{Namespace: "games", Server: server + "/select/0/prometheus/", PromQL: `sum(rate(a{b="c d"}[1m]))`}
	if n, err := newClient().Ask(t.Context(), q, time.Now()); n.Number != 1 || err != nil {
		t.Errorf("got %v, %v", n, err)
	}
}

func TestARedirectIsNotFollowed(t *testing.T) {
	t.Parallel()
	var followed atomic.Bool
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		followed.Store(true)
		vector(`{"metric":{},"value":[1,"0"]}`)(w, r)
	})
	for _, code := range []int{301, 302, 303, 307, 308} {
		server := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other+r.URL.Path, code) })
		_, err := newClient().Ask(t.Context(), Query{Namespace: "games", Server: server, PromQL: "up"}, time.Now())
		if outbound.ReasonOf(err) != outbound.BadStatus || err == nil || !strings.Contains(err.Error(), strconv.Itoa(code)+", and redirects are not followed") {
			t.Errorf("%d: %v", code, err)
		}
	}
	if followed.Load() {
		t.Error("a redirect was followed")
	}
}

func TestWhatASecretHasIsShown(t *testing.T) {
	t.Parallel()
	shown := make(chan http.Header, 1)
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		shown <- r.Header.Clone()
		vector(`{"metric":{},"value":[1,"0"]}`)(w, r)
	})
	ask := func(data map[string]string, headers ...v1alpha1.TriggerHeader) http.Header {
		t.Helper()
		c := newClient(secretFor("https://elsewhere, "+server+"/path", data))
		q := Query{Namespace: "games", Server: server, PromQL: "up", Auth: &v1alpha1.TriggerAuth{Secret: "prometheus", Headers: headers}}
		if _, err := c.Ask(t.Context(), q, time.Now()); err != nil {
			t.Fatal(err)
		}
		return <-shown
	}
	if got := ask(map[string]string{"token": "abc\n"}).Get("Authorization"); got != "Bearer abc" {
		t.Errorf("a token is shown as %q", got)
	}
	basic := http.Request{Header: ask(map[string]string{"username": "anna", "password": "a:b\n"})}
	if user, password, ok := basic.BasicAuth(); !ok || user != "anna" || password != "a:b" {
		t.Errorf("a user is shown as %q %q, %t", user, password, ok)
	}
	got := ask(map[string]string{"org": "games"}, v1alpha1.TriggerHeader{Name: "X-Scope-OrgID", Key: "org"})
	if got.Get("X-Scope-Orgid") != "games" || got.Get("Authorization") != "" {
		t.Errorf("headers are %v", got)
	}
}

func TestNothingIsShownToAServerThatTheSecretDoesNotName(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := serve(t, func(http.ResponseWriter, *http.Request) { asked.Add(1) })
	u, _ := url.Parse(server)
	for name, servers := range map[string]string{
		"none": "", "another host": "http://127.0.0.2:" + u.Port(), "another port": "http://127.0.0.1:1", "another scheme": "https://" + u.Host, "no URL": u.Host,
		"a longer name": server + "0",
	} {
		c := newClient(secretFor(servers, map[string]string{"token": "abc"}))
		_, err := c.Ask(t.Context(), Query{Namespace: "games", Server: server, PromQL: "up", Auth: &v1alpha1.TriggerAuth{Secret: "prometheus"}}, time.Now())
		if outbound.ReasonOf(err) != outbound.BadSecret || err == nil || !strings.Contains(err.Error(), "may not be shown to "+server) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("it was asked %d times", n)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	valid, past := time.Now().Add(time.Hour), time.Now().Add(-24*time.Hour)
	idle := vector(`{"metric":{},"value":[1,"0"]}`)
	cert, key := ours.sign(t, "operator", valid)
	wrongCert, wrongKey := theirs.sign(t, "operator", valid)
	plain := strings.Replace(serve(t, idle), "http://", "https://", 1)
	good := ours.serveTLS(t, "prometheus.example", valid, tls.NoClientCert, idle)
	mutual := ours.serveTLS(t, "prometheus.example", valid, tls.RequireAndVerifyClientCert, idle)
	for name, c := range map[string]struct {
		server  string
		tls     v1alpha1.TriggerTLS
		secret  map[string]string
		wantErr string
	}{
		"an authority and a name":          {server: good, tls: v1alpha1.TriggerTLS{CABundle: ours.pem, ServerName: "prometheus.example"}},
		"an authority in the Secret":       {server: good, tls: v1alpha1.TriggerTLS{ServerName: "prometheus.example"}, secret: map[string]string{"ca.crt": string(ours.pem)}},
		"another authority":                {server: good, tls: v1alpha1.TriggerTLS{CABundle: theirs.pem, ServerName: "prometheus.example"}, wantErr: "into caBundle"},
		"the system's authorities":         {server: good, tls: v1alpha1.TriggerTLS{ServerName: "prometheus.example"}, wantErr: "into caBundle"},
		"another name":                     {server: good, tls: v1alpha1.TriggerTLS{CABundle: ours.pem, ServerName: "other.example"}, wantErr: "isn't for other.example"},
		"the address as the name":          {server: good, tls: v1alpha1.TriggerTLS{CABundle: ours.pem}, wantErr: "isn't for 127.0.0.1"},
		"no certificate in caBundle":       {server: good, tls: v1alpha1.TriggerTLS{CABundle: []byte("x"), ServerName: "prometheus.example"}, wantErr: "no certificate in PEM"},
		"an expired certificate":           {server: ours.serveTLS(t, "prometheus.example", past, tls.NoClientCert, idle), tls: v1alpha1.TriggerTLS{CABundle: ours.pem, ServerName: "prometheus.example"}, wantErr: "has expired"},
		"a server without TLS":             {server: plain, tls: v1alpha1.TriggerTLS{CABundle: ours.pem}, wantErr: "doesn't speak TLS"},
		"a client's certificate":           {server: mutual, tls: v1alpha1.TriggerTLS{CABundle: ours.pem, ServerName: "prometheus.example"}, secret: map[string]string{"tls.crt": string(cert), "tls.key": string(key)}},
		"a client without one":             {server: mutual, tls: v1alpha1.TriggerTLS{CABundle: ours.pem, ServerName: "prometheus.example"}, wantErr: "can't be secured"},
		"a client's of another authority":  {server: mutual, tls: v1alpha1.TriggerTLS{CABundle: ours.pem, ServerName: "prometheus.example"}, secret: map[string]string{"tls.crt": string(wrongCert), "tls.key": string(wrongKey)}, wantErr: "can't be secured"},
		"a certificate with another's key": {server: mutual, tls: v1alpha1.TriggerTLS{CABundle: ours.pem}, secret: map[string]string{"tls.crt": string(cert), "tls.key": string(wrongKey)}, wantErr: "no certificate and its key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := Query{Namespace: "games", Server: c.server, PromQL: "up", TLS: &c.tls}
			var given []*corev1.Secret
			if c.secret != nil {
				q.Auth = &v1alpha1.TriggerAuth{Secret: "prometheus"}
				given = append(given, secretFor(c.server+", https://prometheus.example", c.secret))
			}
			_, err := newClient(given...).Ask(t.Context(), q, time.Now())
			switch {
			case c.wantErr == "" && err != nil:
				t.Errorf("got %v", err)
			case c.wantErr != "" && (err == nil || !strings.Contains(err.Error(), c.wantErr)):
				t.Errorf("got %v, want %q", err, c.wantErr)
			}
		})
	}
}

func TestOnlyAllowedAddressesAreAsked(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		vector(`{"metric":{},"value":[1,"0"]}`)(w, r)
	})
	u, _ := url.Parse(server)
	port, _ := strconv.Atoi(u.Port())
	service := func(ip string, port int) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "monitoring", Name: "prometheus"}, Spec: corev1.ServiceSpec{
			ClusterIP: ip, Ports: []corev1.ServicePort{{Port: int32(port)}},
		}}
	}
	name := "http://prometheus.monitoring.svc.cluster.local:" + u.Port()
	external := service("127.0.0.1", port)
	external.Spec.Type = corev1.ServiceTypeExternalName
	none := outbound.Addresses{}
	local := none.WithLoopback()
	open := outbound.Addresses{Networks: everywhere}.WithLoopback()
	for what, c := range map[string]struct {
		server    string
		namespace string
		addresses outbound.Addresses
		service   *corev1.Service
		shared    bool
		wantErr   string
	}{
		"a loopback address":                     {server: server, addresses: outbound.Addresses{Networks: everywhere}, wantErr: "loopback"},
		"a name that leads there":                {server: "http://localhost:" + u.Port(), addresses: outbound.Addresses{Networks: everywhere}, wantErr: "loopback"},
		"a name that leads to one that isn't":    {server: "http://localhost:" + u.Port(), addresses: outbound.Addresses{Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}.WithLoopback(), wantErr: "its address isn't among the addresses"},
		"an address that isn't listed":           {server: "http://10.0.0.1", addresses: outbound.Addresses{Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}, wantErr: "isn't among the addresses"},
		"a URL where none is allowed":            {server: "http://prometheus.example", addresses: local, wantErr: "allows no URLs"},
		"a Service of the namespace":             {server: name, namespace: "monitoring", addresses: local, service: service("127.0.0.1", port)},
		"a Service that lets in":                 {server: name, addresses: local, service: service("127.0.0.1", port), shared: true},
		"a Service that doesn't":                 {server: name, addresses: local, service: service("127.0.0.1", port), wantErr: "no Service with a ClusterIP that namespace games may ask"},
		"no such Service":                        {server: name, addresses: local, wantErr: "no Service with a ClusterIP that namespace games may ask"},
		"no such Service where URLs are allowed": {server: name, addresses: open, wantErr: "no Service with a ClusterIP that namespace games may ask"},
		"one that doesn't, where they are":       {server: name, addresses: open, service: service(corev1.ClusterIPNone, port), wantErr: "no Service with a ClusterIP that namespace games may ask"},
		"a Service's other port":                 {server: name, addresses: local, service: service("127.0.0.1", 1), shared: true, wantErr: "has no TCP port"},
		"a Service without a ClusterIP":          {server: name, addresses: local, service: service(corev1.ClusterIPNone, port), shared: true, wantErr: "no Service with a ClusterIP"},
		"a Service that is another's name":       {server: name, addresses: local, service: external, shared: true, wantErr: "no Service with a ClusterIP"},
		"a Service at a forbidden address":       {server: name, addresses: none, service: service("127.0.0.1", port), shared: true, wantErr: "loopback"},
	} {
		before := asked.Load()
		c.namespace = map[string]string{"": "games"}[c.namespace] + c.namespace
		if c.service != nil {
			// What lets a namespace have it as a front doesn't let it be asked.
			c.service.Annotations = map[string]string{wellknown.AllowedNamespacesAnnotation: "*"}
			if c.shared {
				c.service.Annotations[wellknown.TriggerNamespacesAnnotation] = "shop, " + c.namespace
			}
		}
		client := New(Options{
			Addresses: c.addresses, Secrets: triggerauth.New(secrets{}),
			Services: func(_ context.Context, namespace, name string) (*corev1.Service, error) {
				if namespace != "monitoring" || name != "prometheus" {
					t.Errorf("%s: Service %s/%s is looked up", what, namespace, name)
				}
				return c.service, nil
			},
		})
		_, err := client.Ask(t.Context(), Query{Namespace: c.namespace, Server: c.server, PromQL: "up"}, time.Now())
		switch {
		case c.wantErr == "" && err != nil:
			t.Errorf("%s: %v", what, err)
		case c.wantErr != "" && (outbound.ReasonOf(err) != outbound.NotAllowed || err == nil || !strings.Contains(err.Error(), c.wantErr)):
			t.Errorf("%s: %v, want %q", what, err, c.wantErr)
		case c.wantErr != "" && asked.Load() != before:
			t.Errorf("%s: it was asked", what)
		}
	}
}

func TestEqualQueriesAreOne(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		vector(`{"metric":{},"value":[1,"7"]}`)(w, r)
	})
	began := time.Now()
	c := newClient(secretFor(server, map[string]string{"token": "abc"}))
	q := Query{Namespace: "games", Server: server, PromQL: "players"}
	ask := func(q Query, since time.Time) {
		t.Helper()
		if n, err := c.Ask(t.Context(), q, since); n.Number != 7 || err != nil {
			t.Errorf("got %v, %v", n, err)
		}
	}
	var wait sync.WaitGroup
	for range 2000 {
		wait.Go(func() { ask(q, began) })
	}
	wait.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("2,000 equal queries are %d", n)
	}
	for i, other := range []Query{
		{Namespace: "others", Server: q.Server, PromQL: q.PromQL},
		{Namespace: q.Namespace, Server: q.Server + "/", PromQL: q.PromQL},
		{Namespace: q.Namespace, Server: q.Server, PromQL: "sum(players)"},
		{Namespace: q.Namespace, Server: q.Server, PromQL: q.PromQL, Auth: &v1alpha1.TriggerAuth{Secret: "prometheus"}},
	} {
		ask(other, began)
		if n := asked.Load(); n != int32(i)+2 {
			t.Errorf("%v is %d queries", other, n)
		}
	}
	ask(q, time.Now())
	if n := asked.Load(); n != 6 {
		t.Errorf("an answer of before is used where a new one is wanted: %d", n)
	}
}

func TestASlowServerDelaysNobodyElse(t *testing.T) {
	t.Parallel()
	reached := make(chan struct{}, 1000)
	var now, most atomic.Int32
	slow := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		reached <- struct{}{}
		<-r.Context().Done()
	})
	quick := serve(t, vector(`{"metric":{},"value":[1,"7"]}`))
	c := newClient()
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	hang := func(namespace string) {
		for i := range 2 * maxOfNamespaceServer {
			wait.Go(func() {
				_, _ = c.Ask(ctx, Query{Namespace: namespace, Server: slow, PromQL: fmt.Sprint("x", i)}, time.Time{})
			})
		}
	}
	ask := func(namespace string) {
		t.Helper()
		began := time.Now()
		if n, err := c.Ask(t.Context(), Query{Namespace: namespace, Server: quick, PromQL: "players"}, time.Now()); n.Number != 7 || err != nil {
			t.Errorf("got %v, %v", n, err)
		}
		if took := time.Since(began); took > queryTime/2 {
			t.Errorf("another server's answer took %s", took)
		}
	}
	// One namespace has a part of a server.
	hang("games")
	for range maxOfNamespaceServer {
		<-reached
	}
	ask("games")
	if n := most.Load(); n > maxOfNamespaceServer {
		t.Errorf("a namespace has %d queries at a server at once", n)
	}
	for i := range 3 * maxAtServer / maxOfNamespaceServer {
		hang(fmt.Sprint("others", i))
	}
	for range maxAtServer - maxOfNamespaceServer {
		<-reached
	}
	ask("games")
	ask("others0")
	// Those that are given up may still be seen there.
	if n := most.Load(); n > 2*maxAtServer {
		t.Errorf("a server has %d queries at once", n)
	}
}

func TestAServersBoundsHoldHoweverItIsCalled(t *testing.T) {
	t.Parallel()
	var now, most atomic.Int32
	reached := make(chan struct{}, 1000)
	slow := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		most.Store(max(most.Load(), now.Add(1)))
		defer now.Add(-1)
		reached <- struct{}{}
		<-r.Context().Done()
	})
	u, _ := url.Parse(slow)
	port, _ := strconv.Atoi(u.Port())
	c := newClient()
	c.options.Services = func(_ context.Context, namespace, name string) (*corev1.Service, error) {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{
			ClusterIP: "127.0.0.1", Ports: []corev1.ServicePort{{Port: int32(port)}},
		}}, nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wait sync.WaitGroup
	for _, host := range []string{
		"prometheus.games.svc", "Prometheus.games.SVC", "prometheus.games.svc.", "prometheus.games.svc.cluster.local", "prometheus.games.svc.x", "127.0.0.1", "[::ffff:127.0.0.1]",
	} {
		for i := range maxOfNamespaceServer {
			wait.Go(func() {
				_, _ = c.Ask(ctx, Query{Namespace: "games", Server: "http://" + host + ":" + u.Port(), PromQL: fmt.Sprint("x", i)}, time.Time{})
			})
		}
	}
	for range maxOfNamespaceServer {
		<-reached
	}
	quick := serve(t, vector(`{"metric":{},"value":[1,"7"]}`))
	for range 10 {
		if _, err := c.Ask(ctx, Query{Namespace: "others", Server: quick, PromQL: "players"}, time.Now()); err != nil {
			t.Error(err)
		}
	}
	// Those that are given up may still be seen there.
	if n := most.Load(); n > 2*maxOfNamespaceServer {
		t.Errorf("by its many names a server has %d queries of a namespace at once", n)
	}
	cancel()
	wait.Wait()
}

func TestAddressesAreWrittenInOneWay(t *testing.T) {
	t.Parallel()
	for server, want := range map[string]string{
		"http://Prometheus.example.": "prometheus.example:80", "https://prometheus.example:0443": "prometheus.example:443",
		"http://[::FFFF:10.0.0.1]:90": "10.0.0.1:90", "http://[2001:DB8:0::1]": "[2001:db8::1]:80",
	} {
		u, err := url.Parse(server)
		if err != nil {
			t.Fatal(err)
		}
		if got := addressOf(u); got != want {
			t.Errorf("%s is %s, want %s", server, got, want)
		}
	}
}

func TestASlowServerIsGivenUp(t *testing.T) {
	t.Parallel()
	slow := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, `{"status":`)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	began := time.Now()
	_, err := newClient().Ask(t.Context(), Query{Namespace: "games", Server: slow, PromQL: "up"}, began)
	if outbound.ReasonOf(err) != outbound.Timeout || time.Since(began) > 2*queryTime {
		t.Errorf("after %s: %v", time.Since(began), err)
	}
}

func TestADeadServerIsSaidTheSameEachTime(t *testing.T) {
	t.Parallel()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	ln.Close()
	c, said := newClient(), map[string]bool{}
	for range 3 {
		_, err := c.Ask(t.Context(), Query{Namespace: "games", Server: "http://" + address, PromQL: "up"}, time.Now())
		if outbound.ReasonOf(err) != outbound.Unreachable || err == nil {
			t.Fatalf("got %v", err)
		}
		said[err.Error()] = true
	}
	if len(said) != 1 {
		t.Errorf("the sentences are %v", said)
	}
}
