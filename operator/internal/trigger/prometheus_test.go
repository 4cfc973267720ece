package trigger

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/promquery"
)

// metricsServer answers queries as the test says.
type metricsServer struct {
	mu      sync.Mutex
	answers map[string]float64
	// ages are how old answers are, where the asker takes such.
	ages map[string]time.Duration
	// slow is how long each question takes, and turn how long it waits before that.
	slow  time.Duration
	turn  time.Duration
	err   error
	asked []promquery.Query
	since time.Time
}

func (m *metricsServer) Ask(_ context.Context, q promquery.Query, since time.Time) (promquery.Answer, error) {
	<-time.After(m.turn + m.slow) // by the test's own clock
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked, m.since = append(m.asked, q), since
	if m.err != nil {
		return promquery.Answer{}, m.err
	}
	answer := promquery.Answer{Number: m.answers[q.PromQL], At: time.Now().Add(-m.slow)}
	if age, ok := m.ages[q.PromQL]; ok && !answer.At.Add(-age).Before(since) {
		answer.At = answer.At.Add(-age)
	}
	return answer, nil
}

// is makes the server answer so from now on.
func (m *metricsServer) is(answers map[string]float64, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers, m.err = answers, err
}

var prometheusKey = types.NamespacedName{Namespace: "games", Name: "lobby"}

// byQuery is a service that a Prometheus knows.
func byQuery(change ...func(*v1alpha1.PrometheusTrigger)) Service {
	t := &v1alpha1.PrometheusTrigger{ServerAddress: "http://prometheus", Query: "players", Threshold: "0.5"}
	for _, c := range change {
		c(t)
	}
	return Service{
		Every: MaxInterval, SleepAfter: 2 * time.Minute,
		Triggers: []v1alpha1.Trigger{{Type: v1alpha1.TriggerPrometheus, Prometheus: t}},
	}
}

func TestAPrometheusTellsWhetherAServiceIsIdle(t *testing.T) {
	t.Parallel()
	up := func(p *v1alpha1.PrometheusTrigger) { p.UptimeFilter = `job="games"` }
	const uptime = `min_over_time((max((up{job="games"} == 1) and (time() - timestamp(up{job="games"}) < 90)) or vector(0))[120s:15s])`
	for name, c := range map[string]struct {
		service Service
		answers map[string]float64
		err     error
		idle    bool
		wantErr string
	}{
		"below the threshold":          {service: byQuery(), answers: map[string]float64{"players": 0.49}, idle: true},
		"at the threshold":             {service: byQuery(), answers: map[string]float64{"players": 0.5}},
		"no answer":                    {service: byQuery(), err: errors.New("it is broken"), wantErr: "it is broken"},
		"a source that is up":          {service: byQuery(up), answers: map[string]float64{uptime: 1}, idle: true},
		"a source that was down":       {service: byQuery(up), answers: map[string]float64{uptime: 0}, wantErr: "What uptimeFilter selects was not up all the last 2m0s, so the query may say too little: see why Prometheus didn't scrape it, which it must once a minute, or correct uptimeFilter"},
		"a source of which nobody has": {service: byQuery(up), err: errors.New("it is broken"), wantErr: "uptimeFilter: it is broken"},
		"a threshold that is none":     {service: byQuery(func(p *v1alpha1.PrometheusTrigger) { p.Threshold = "" }), wantErr: `threshold "" is no number`},
		"a type of a later version":    {service: Service{Triggers: []v1alpha1.Trigger{{Type: "later"}}}, wantErr: "this operator knows no triggers of type later"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, notified := poller(t, nil)
				p.prometheus = &metricsServer{answers: c.answers, err: c.err}
				p.Read(prometheusKey, c.service)
				<-notified
				r := p.Read(prometheusKey, c.service)
				said := ""
				if r.Err != nil {
					said = r.Err.Error()
				}
				if said != c.wantErr || r.BelowSince.IsZero() == c.idle {
					t.Errorf("got %+v, want idle %t and the error %q", r, c.idle, c.wantErr)
				}
			})
		})
	}
}

func TestAFailureBeginsTheTimeOfIdlenessAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, notified := poller(t, nil)
		server := &metricsServer{}
		p.prometheus = server
		s := byQuery()
		p.Read(prometheusKey, s)
		<-notified
		server.is(nil, errors.New("it is broken"))
		<-notified
		if r := p.Read(prometheusKey, s); r.Err == nil || !r.BelowSince.IsZero() {
			t.Errorf("while it fails there is %+v", r)
		}
		server.is(nil, errors.New("it is broken otherwise"))
		<-notified
		if r := p.Read(prometheusKey, s); r.Err == nil || r.Err.Error() != "it is broken otherwise" {
			t.Errorf("while it fails otherwise there is %+v", r)
		}
		server.is(nil, nil)
		<-notified
		if r := p.Read(prometheusKey, s); r.Err != nil || time.Since(r.BelowSince) > time.Second {
			t.Errorf("after it failed there is %+v", r)
		}
	})
}

func TestAnswersMayBeAWhileOldButNotBeforeASleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, notified := poller(t, nil)
		server := &metricsServer{}
		p.prometheus = server
		s := byQuery()
		p.Read(prometheusKey, s)
		<-notified
		if age := time.Since(server.since); age != promquery.FreshFor {
			t.Errorf("an answer may be %s old", age)
		}
		<-time.After(time.Second)
		since := time.Now()
		p.ReadSince(prometheusKey, s, since)
		<-notified
		if server.since.Before(since) {
			t.Errorf("before a sleep an answer of %s before is taken", since.Sub(server.since))
		}
	})
}

func TestAReadingIsAsOldAsItsOldestAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, notified := poller(t, func(context.Context, string) (float64, error) { return 0, nil })
		const age = 14 * time.Second
		p.prometheus = &metricsServer{ages: map[string]time.Duration{"players": age}}
		s := byQuery()
		_, pods := of("games", 1, 1)
		s.Triggers = append(s.Triggers, pods.Triggers...)
		s.Pods = pods.Pods
		began := time.Now()
		p.Read(prometheusKey, s)
		<-notified
		if r := p.Read(prometheusKey, s); !r.At.Equal(began.Add(-age)) || r.BelowSince.Before(began) {
			t.Errorf("of an answer that is %s old there is %+v", age, r)
		}
		// Such an answer isn't one to a question of now, though it is taken after it.
		r, read := p.ReadSince(prometheusKey, s, began)
		for ; !read; r, read = p.ReadSince(prometheusKey, s, began) {
			<-notified
		}
		if r.At.Before(began) {
			t.Errorf("before a sleep there is %+v, want one of %s or later", r, began)
		}
	})
}

func TestASlowPrometheusHasTheServiceSleep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, notified := poller(t, nil)
		const slow = 3 * time.Second
		p.prometheus = &metricsServer{slow: slow, answers: map[string]float64{uptimeQuery(`job="games"`, 2*time.Minute): 1}}
		s := byQuery(func(p *v1alpha1.PrometheusTrigger) { p.UptimeFilter = `job="games"` })
		p.Read(prometheusKey, s)
		<-notified
		if r := p.Read(prometheusKey, s); r.Err != nil || time.Since(r.At) != slow {
			t.Errorf("of a server that takes %s there is %+v, %s old", slow, r, time.Since(r.At))
		}
	})
}

// Where many ask one server each waits for its turn. What the pods said before that is old by then, and no service
// sleeps by it.
func TestPodsAreAskedOnceTheServersTurnHasCome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, notified := poller(t, func(context.Context, string) (float64, error) { return 0, nil })
		p.prometheus = &metricsServer{turn: 20 * time.Second}
		s := byQuery()
		_, pods := of("games", 1, 1)
		s.Triggers = append(pods.Triggers, s.Triggers...)
		s.Pods = pods.Pods
		p.Read(prometheusKey, s)
		<-notified
		if r := p.Read(prometheusKey, s); r.Err != nil || time.Since(r.At) > time.Second || r.BelowSince.IsZero() {
			t.Errorf("of a server that takes its time there is %+v, %s old", r, time.Since(r.At))
		}
	})
}

func TestWhatIsAskedIsTheTriggers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, notified := poller(t, nil)
		server := &metricsServer{}
		p.prometheus = server
		tls, auth := &v1alpha1.TriggerTLS{ServerName: "a"}, &v1alpha1.TriggerAuth{Secret: "b"}
		p.Read(prometheusKey, byQuery(func(p *v1alpha1.PrometheusTrigger) { p.TLS, p.Auth = tls, auth }))
		<-notified
		want := []promquery.Query{{Namespace: "games", Server: "http://prometheus", PromQL: "players", TLS: tls, Auth: auth}}
		if diff := cmp.Diff(want, server.asked); diff != "" {
			t.Errorf("what is asked (-want +got):\n%s", diff)
		}
	})
}
