package report

import (
	"errors"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/valyala/fasthttp"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

func TestWhoMayReport(t *testing.T) {
	r := start(t, cluster(t), "127.0.0.1:0")
	report := func(server string) string { return strings.Replace(body("", ""), "lobby-1", server, 1) }
	large := body(`,"lists":{"a":{"capacity":1000,"values":`+values(1000, 128)+`}}`, "")
	for name, c := range map[string]struct {
		token, body string
		code        int
		want        string
	}{
		"its own Pod":                            {"good", report("lobby-1"), 200, `"name":"lobby-1"`},
		"no token":                               {"", report("lobby-1"), 401, "no bearer token"},
		"another audience's":                     {"bad", report("lobby-1"), 401, "audience"},
		"while the keys can't be fetched":        {"early", report("lobby-1"), 503, "keys"},
		"the Pod of another Server":              {"other", report("lobby-1"), 403, "the Pod of Server lobby-2"},
		"the Pod before this one":                {"old", report("lobby-1"), 401, "a Pod that is gone"},
		"a Pod that has ended":                   {"ended", report("lobby-1"), 401, "a Pod that is gone"},
		"a token of no Pod":                      {"unbound", report("lobby-1"), 401, "bound to no Pod"},
		"a Pod of nobody":                        {"alone", report("lobby-1"), 403, "not a Server's"},
		"a Pod of another group's Server":        {"stranger", report("lobby-1"), 403, "not a Server's"},
		"a Server that isn't known":              {"orphan", report("orphan"), 404, "there is no Server games/orphan"},
		"a Pod of an earlier Server of its name": {"former", report("former"), 403, "an earlier Server"},
		"a Pod that signs":                       {"signed", report("signs"), 200, `"name":"signs"`},
		"a key that its Pod didn't begin with":   {"stolen", report("signs"), 401, "didn't begin with"},
		"a key of a Pod that has none":           {"unasked", report("lobby-1"), 401, "didn't begin with"},
		"a body that is none":                    {"good", "{}", 400, "server must be"},
		"a large body":                           {"good", large, 200, `"name":"lobby-1"`},
		"a large body without a token":           {"bad", large, 413, "too large"},
		"a body beyond all bounds":               {"good", strings.Repeat(" ", reportapi.MaxReportBytes+1), 413, "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			code, answer, err := r.post(c.token, []byte(c.body))
			if c.code == http.StatusRequestEntityTooLarge && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)) {
				return // it was still being sent
			}
			if err != nil || code != c.code || !strings.Contains(string(answer), c.want) {
				t.Errorf("answered %d %.200s, %v; want %d with %q", code, answer, err, c.code, c.want)
			}
		})
	}
	if r.table.last("server-2") != nil || r.table.last("server-7") != nil || r.table.last("server-8b") != nil {
		t.Error("a refused report is remembered")
	}
}

func TestAReportIsHeldUntilThereIsSomethingToTell(t *testing.T) {
	for name, c := range map[string]struct {
		happens func(r *replica)
		want    func(reportapi.Answer) bool
	}{
		"a drain": {func(r *replica) {
			s := r.read()
			s.Spec.Drain = true
			if err := r.c.Update(r.t.Context(), s); err != nil {
				r.t.Fatal(err)
			}
			r.table.notify(s.UID)
		}, func(a reportapi.Answer) bool { return a.Drain }},
		"a newer report": {func(r *replica) { r.say(next(7)) }, func(a reportapi.Answer) bool { return !a.Drain }},
		"another process of the sidecar": {func(r *replica) {
			r.say(next(1, func(r *reportapi.Report) { r.Instance, r.Restore = "two", true }))
		}, func(a reportapi.Answer) bool { return a.Restored == nil }},
		"the end of the replica": {func(r *replica) { r.stop() }, func(a reportapi.Answer) bool { return a.Version != "" }},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, cluster(t), "127.0.0.1:0")
			answers := r.hold(next(6))
			r.table.notify("server-1") // of something that tells nothing
			select {
			case a := <-answers:
				t.Fatalf("answered %+v before anything happened", a)
			case <-time.After(50 * time.Millisecond):
			}
			began := time.Now()
			c.happens(r)
			if a, ok := <-answers; !ok || !c.want(a) {
				t.Errorf("answered %+v", a)
			}
			if took := time.Since(began); took > within/2 {
				t.Errorf("answered after %s, want at once", took)
			}
		})
	}
}

// The version of an answer is that of its content, whatever was told before and by which replica.
func TestAnAnswersVersionIsItsContents(t *testing.T) {
	r := start(t, cluster(t), "127.0.0.1:0")
	sequence, versions := uint64(5), map[string]string{}
	want := func(when string) {
		sequence++
		got, want := r.say(next(sequence)).Version, Answer(r.read(), r.readPod(), &v1alpha1.GameType{}).Version
		if versions[when] = got; got != want {
			t.Errorf("%s: answered with version %s, want %s", when, got, want)
		}
	}
	want("at first")
	r.eventually("the report is written", func() bool { return r.read().Status.Game != nil })
	s := r.read()
	s.Status.ObservedGeneration++
	if err := r.c.Status().Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	want("after what tells nothing")
	s.Spec.Drain = true
	if err := r.c.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	want("after a drain")
	want("and again")
	if versions["at first"] == versions["after a drain"] || versions["after a drain"] != versions["and again"] {
		t.Errorf("the versions are %v", versions)
	}
}

func TestAReportIsHeldNoLongerThanTheHoldTime(t *testing.T) {
	const holdTime = 200 * time.Millisecond
	r := start(t, cluster(t), "127.0.0.1:0", func(r *replica) { r.report.hold = holdTime })
	first := r.say(next(6))
	began := time.Now()
	second := r.say(next(7, func(r *reportapi.Report) { r.Seen = first.Version }))
	if took := time.Since(began); took < holdTime*9/10-tick || second.Version != first.Version {
		t.Errorf("answered after %s with version %s, want %s after %s", took, second.Version, first.Version, holdTime)
	}
	if n := r.report.held.Load(); n != 0 {
		t.Errorf("%d reports are held, want none", n)
	}
}

func TestAReplicaHoldsNoMoreThanItMay(t *testing.T) {
	r := start(t, cluster(t), "127.0.0.1:0", func(r *replica) { r.report.maxHeld = 1 })
	answers := r.hold(next(6))
	code, text, err := r.post("other", []byte(strings.Replace(body("", ""), "lobby-1", "lobby-2", 1)))
	if err != nil || code != http.StatusServiceUnavailable {
		t.Errorf("answered %d %s, %v; want 503", code, text, err)
	}
	if r.table.last("server-2") != nil {
		t.Error("a report that was sent away is remembered")
	}
	r.stop()
	<-answers
}

func TestARefusedSidecarIsSentToAnotherReplica(t *testing.T) {
	r := start(t, cluster(t), "127.0.0.1:0")
	full := start(t, cluster(t), "127.0.0.1:0", func(r *replica) { r.report.maxHeld = 0 })
	for name, c := range map[string]struct {
		at     *replica
		token  string
		body   string
		closes bool
	}{
		"a report that is taken":            {r, "good", body("", ""), false},
		"a report that can't be understood": {r, "good", "{}", false},
		"a replica that holds enough":       {full, "good", body("", ""), true},
		"a Pod that isn't known yet":        {r, "old", body("", ""), true},
		"keys that aren't known yet":        {r, "early", body("", ""), true},
		"a Server that isn't known yet":     {r, "orphan", strings.Replace(body("", ""), "lobby-1", "orphan", 1), true},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.at.url+reportapi.ReportPath, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+c.token)
		transport := &http.Transport{}
		res, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		transport.CloseIdleConnections()
		if res.Close != c.closes {
			t.Errorf("%s: answered %d, closed is %t, want %t", name, res.StatusCode, res.Close, c.closes)
		}
	}
}

func TestAServerThatIsGoneEndsItsReport(t *testing.T) {
	r := start(t, cluster(t), "127.0.0.1:0")
	answers := r.hold(next(6))
	if err := r.c.Delete(t.Context(), r.read()); err != nil {
		t.Fatal(err)
	}
	r.table.forget("server-1")
	if a, ok := <-answers; ok {
		t.Errorf("answered %+v, want a refusal", a)
	}
	if n := len(r.table.entries); n != 0 {
		t.Errorf("%d Servers are remembered, want none", n)
	}
}

func TestAnotherReplicaRestores(t *testing.T) {
	c := cluster(t)
	one, two := start(t, c, "127.0.0.1:0"), start(t, c, "127.0.0.1:0")
	one.say(next(6, players(3), func(r *reportapi.Report) {
		r.DeletionAllowed = false
		r.Game.Labels = map[string]string{"agones.dev/sdk-map": "dust"}
	}))
	// The metadata is written after the status.
	one.eventually("the report is written", func() bool { return one.read().Labels["agones.dev/sdk-map"] == "dust" })
	again := next(0, func(r *reportapi.Report) { r.Instance, r.Restore = "two", true })
	for name, r := range map[string]*replica{"the same": one, "another": two} {
		got := r.say(again).Restored
		if got == nil || got.Players == nil || got.Players.Current != 3 || got.Labels["agones.dev/sdk-map"] != "dust" || got.State != v1alpha1.GameReady {
			t.Errorf("%s replica restores %+v", name, got)
		}
	}
}

func TestWhoLetsItsReportBeHeldForLongerIsAnsweredLater(t *testing.T) {
	h := &Handler{hold: reportapi.HoldTime}
	for header, want := range map[string]time.Duration{
		"": reportapi.HoldTime, "1": reportapi.HoldTime, "15": 15 * time.Second, "20": reportapi.RenewalTime,
		"255": reportapi.RenewalTime, "1000": reportapi.HoldTime, "-1": reportapi.HoldTime, "soon": reportapi.HoldTime,
	} {
		rc := &fasthttp.RequestCtx{}
		rc.Request.Header.Set(reportapi.HoldHeader, header)
		if got := h.holdOf(rc); got != want {
			t.Errorf("with %q it is held for %s, want %s", header, got, want)
		}
	}
	if reportapi.RenewalTime >= reportapi.FreshFor {
		t.Error("a report that is held doesn't count any more")
	}
}
