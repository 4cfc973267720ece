package elasticservice_test

import (
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/informerapi"
	"dormouse.dev/dormouse/test/api/fixture"
)

// asleep makes a service that sleeps and returns the revision since when it does.
func (w *world) asleep(name string) uint64 {
	w.t.Helper()
	w.deployment(name, 0)
	w.service(name)
	w.elastic(name)
	w.want(name, promptly, ready, inPhase(v1alpha1.PhaseAsleep, v1alpha1.ModeProxy))
	w.wantEndpoints(name, promptly, resolversAre(takesClients))
	return w.latest()
}

// wantStillAsleep checks that nothing of the lobby has changed since.
func (w *world) wantStillAsleep(since uint64) {
	w.t.Helper()
	const name = "lobby"
	if n := w.count(since, writesTo(name)); n > 0 || w.replicas(name) != 0 {
		w.t.Errorf("the target of %s was written %d times and wants %d replicas, want none of both", name, n, w.replicas(name))
	}
	es := &v1alpha1.ElasticService{}
	if err := w.read(w.t.Context(), name, es); err != nil {
		w.t.Fatal(err)
	}
	if es.Status.LastWakeTime != nil {
		w.t.Errorf("lastWakeTime is %s, want none", es.Status.LastWakeTime)
	}
}

func TestTheWakeEndpointWantsTheTokenOfALiveResolverPod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	since := w.asleep("lobby")
	ctx := t.Context()
	token := func(namespace, account, audience string, pod *corev1.Pod) string {
		t.Helper()
		got, err := fixture.Token(ctx, cluster.client, namespace, account, audience, pod)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	w.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: resolverAccount}})

	gone, err := fixture.RunningPod(ctx, cluster.client, "gone-"+w.ns, map[string]string{fixture.NameLabel: resolverApp}, resolverAccount, "")
	if err != nil {
		t.Fatal(err)
	}
	ofGone := token(fixture.SystemNamespace, resolverAccount, wellknown.TokenAudience, gone)
	if err := w.c.Delete(ctx, gone, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	unlabelled, err := fixture.RunningPod(ctx, cluster.client, "unlabelled-"+w.ns, nil, resolverAccount, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.c.Delete(cluster.cleanup, unlabelled, client.GracePeriodSeconds(0)) })

	good := resolverToken(t)
	header, rest, _ := strings.Cut(good, ".")
	payload, signature, _ := strings.Cut(rest, ".")
	other := "A" + signature[1:]
	if other == signature {
		other = "B" + signature[1:]
	}

	body := []byte(`{"count":1,"svc":"lobby","namespace":"` + w.ns + `"}`)
	for name, c := range map[string]struct{ token, want string }{
		"no token":                           {"", "no bearer token"},
		"garbage":                            {"garbage", "malformed"},
		"garbage in three parts":             {"a.b.c", "malformed"},
		"another signature":                  {header + "." + payload + "." + other, "signature"},
		"no algorithm":                       {"eyJhbGciOiJub25lIn0." + payload + ".", ""},
		"a very long token":                  {strings.Repeat("a", 3000), "malformed"},
		"another audience":                   {token(fixture.SystemNamespace, resolverAccount, "example.com", cluster.resolvers.members[0].pod), "audience"},
		"the API server's audience":          {token(fixture.SystemNamespace, resolverAccount, "", cluster.resolvers.members[0].pod), "audience"},
		"another service account":            {token(fixture.SystemNamespace, fixture.OperatorAccount, wellknown.TokenAudience, nil), "only that of the resolver"},
		"the same name in another namespace": {token(w.ns, resolverAccount, wellknown.TokenAudience, nil), "only that of the resolver"},
		"a token of no pod":                  {token(fixture.SystemNamespace, resolverAccount, wellknown.TokenAudience, nil), "resolver pod that is gone"},
		"a pod that is gone":                 {ofGone, "resolver pod that is gone"},
		"a pod that is no resolver":          {token(fixture.SystemNamespace, resolverAccount, wellknown.TokenAudience, unlabelled), "resolver pod that is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			for replica := range cluster.operators {
				wantRefusal(t, replica, c.token, body, http.StatusUnauthorized, c.want)
			}
		})
	}
	w.wantStillAsleep(since)
}

// wantRefusal makes a wake call that must be refused with a sentence.
func wantRefusal(t *testing.T, replica int, token string, body []byte, code int, sentence string) {
	t.Helper()
	got, err := call(t, replica, http.MethodPost, informerapi.WakePath, token, body)
	if err != nil {
		t.Fatal(err)
	}
	if got.code != code {
		t.Fatalf("answered %d %s, want %d", got.code, got.body, code)
	}
	if s := got.sentence(t); !strings.Contains(s, sentence) {
		t.Errorf("the sentence is %q, want %q in it", s, sentence)
	}
	if code == http.StatusUnauthorized && got.header.Get("WWW-Authenticate") != "Bearer" {
		t.Errorf("WWW-Authenticate is %q, want Bearer", got.header.Get("WWW-Authenticate"))
	}
}

func TestTheWakeEndpointRefusesWhatIsNotAWakeCall(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	since := w.asleep("lobby")
	token := resolverToken(t)
	// good is a body that would wake, with parts of it replaced.
	good := `{"count":1,"svc":"lobby","namespace":"` + w.ns + `"}`
	with := func(old, replacement string) string { return strings.Replace(good, old, replacement, 1) }

	for name, c := range map[string]struct {
		method, path, body string
		code               int
		want               string
	}{
		"no body":                      {body: "", code: 400, want: "must be one JSON object like"},
		"not JSON":                     {body: "wake lobby", code: 400, want: "must be one JSON object like"},
		"cut short":                    {body: good[:len(good)-1], code: 400, want: "must be one JSON object like"},
		"an array":                     {body: "[" + good + "]", code: 400, want: "must be one JSON object like"},
		"null":                         {body: "null", code: 400, want: "count is 0"},
		"an empty object":              {body: "{}", code: 400, want: "count is 0: it must be from 1 to 1000000"},
		"something after it":           {body: good + good, code: 400, want: "must be one JSON object like"},
		"a bracket after it":           {body: good + "}", code: 400, want: "must be one JSON object like"},
		"no count":                     {body: with(`"count":1,`, ``), code: 400, want: "count is 0"},
		"a count of zero":              {body: with(`1`, `0`), code: 400, want: "count is 0"},
		"a negative count":             {body: with(`1`, `-1`), code: 400, want: "count is -1"},
		"a count over the bound":       {body: with(`1`, `1000001`), code: 400, want: "from 1 to 1000000"},
		"a count beyond integers":      {body: with(`1`, `99999999999999999999`), code: 400, want: "count"},
		"a broken count":               {body: with(`1`, `1.5`), code: 400, want: "count"},
		"a count in words":             {body: with(`1`, `"1"`), code: 400, want: "count"},
		"no svc":                       {body: with(`"svc":"lobby",`, ``), code: 400, want: "svc must be the name of a Service"},
		"an svc with capitals":         {body: with(`lobby`, `Lobby`), code: 400, want: "svc must be the name of a Service"},
		"an svc that is a path":        {body: with(`lobby`, `../lobby`), code: 400, want: "svc must be the name of a Service"},
		"an svc of 64 characters":      {body: with(`lobby`, strings.Repeat("a", 64)), code: 400, want: "svc must be the name of a Service"},
		"an svc that is a number":      {body: with(`"lobby"`, `7`), code: 400, want: "svc"},
		"no namespace":                 {body: with(`,"namespace":"`+w.ns+`"`, ``), code: 400, want: "namespace must be the name of a namespace"},
		"a namespace that is no label": {body: with(w.ns, `games/lobby`), code: 400, want: "namespace must be the name of a namespace"},
		"an unknown service":           {body: with(`lobby`, `nobody`), code: 404, want: "no ElasticService has Service " + w.ns + "/nobody"},
		"an unknown namespace":         {body: with(w.ns, `nowhere`), code: 404, want: "no ElasticService has Service nowhere/lobby"},
		"another path":                 {path: informerapi.WakePath + "/", body: good, code: 404, want: "nothing at this path"},
		"GET":                          {method: http.MethodGet, code: 405, want: "POST only"},
		"PUT":                          {method: http.MethodPut, body: good, code: 405, want: "POST only"},
		"more than 4 KiB":              {body: good + strings.Repeat(" ", 5<<10), code: 413, want: "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.method == "" {
				c.method = http.MethodPost
			}
			if c.path == "" {
				c.path = informerapi.WakePath
			}
			got, err := call(t, 0, c.method, c.path, token, []byte(c.body))
			if err != nil {
				t.Fatal(err)
			}
			if got.code != c.code {
				t.Fatalf("answered %d %s, want %d", got.code, got.body, c.code)
			}
			if s := got.sentence(t); !strings.Contains(s, c.want) {
				t.Errorf("the sentence is %q, want %q in it", s, c.want)
			}
			if allow := got.header.Get("Allow"); c.code == http.StatusMethodNotAllowed && allow != http.MethodPost {
				t.Errorf("Allow is %q, want POST", allow)
			}
		})
	}
	w.wantStillAsleep(since)
}

func TestAWakeOfAServiceWithoutATargetFindsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.service("lobby")
	w.elastic("lobby")
	w.want("lobby", promptly, hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.TargetNotFound))
	got, err := call(t, 0, http.MethodPost, informerapi.WakePath, resolverToken(t), []byte(`{"count":1,"svc":"lobby","namespace":"`+w.ns+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	if got.code != http.StatusNotFound {
		t.Errorf("answered %d, want 404, by which resolvers send the clients away", got.code)
	}
	if s := got.sentence(t); !strings.Contains(s, "there is no Deployment "+w.ns+"/lobby") {
		t.Errorf("the sentence is %q, want it to say what is missing", s)
	}
}

// kubectl replace --force, and some GitOps tools, delete the target of an awake service and make it anew. Who
// comes in between waits for the next one's servers.
func TestWhoComesWhileATargetIsReplacedWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.awake("lobby", 1)
	before := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "lobby"}}
	if err := w.c.Delete(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	w.want("lobby", promptly, hasCondition(conditions.Ready, metav1.ConditionFalse, reasons.TargetNotFound), inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
	w.servers("lobby")
	w.want("lobby", promptly, inPhase(v1alpha1.PhaseWaking, v1alpha1.ModeProxy))
	w.wantEndpoints("lobby", promptly, resolversAre(takesClients))
	w.deployment("lobby", 1)
	w.servers("lobby", newServer())
	w.want("lobby", promptly, ready, inPhase(v1alpha1.PhaseAwake, v1alpha1.ModeServe))
}
