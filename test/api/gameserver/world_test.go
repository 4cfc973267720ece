package gameserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/test/api/fixture"
)

// world is a namespace of one test's own.
type world struct {
	t  *testing.T
	c  client.WithWatch
	ns string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "games-"}}
	if err := cluster.client.Create(t.Context(), ns); err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	// There is no controller here that makes it.
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "default"}}
	if err := cluster.client.Create(t.Context(), account); err != nil {
		t.Fatalf("create a service account: %v", err)
	}
	return &world{t: t, c: cluster.client, ns: ns.Name}
}

// game is a Server with its Pod, in which a game runs as far as kubelet would say.
type game struct {
	w     *world
	name  string
	pod   *corev1.Pod
	token string
}

// game makes a Server and waits for its Pod.
func (w *world) game(name string, change ...func(*v1alpha1.Server)) *game {
	w.t.Helper()
	w.create(name, change...)
	return w.run(name)
}

// run waits for a Server's Pod, and has a game run in it.
func (w *world) run(name string) *game {
	w.t.Helper()
	g := &game{w: w, name: name, pod: &corev1.Pod{}}
	w.eventually("the Pod of Server "+name, func(ctx context.Context) error {
		err := w.c.Get(ctx, client.ObjectKey{Namespace: w.ns, Name: name}, g.pod)
		if err != nil {
			return fmt.Errorf("%w; the Server says %+v", err, g.server(ctx).Status.Conditions)
		}
		return nil
	})
	original := g.pod.DeepCopy()
	g.pod.Status.Phase = corev1.PodRunning
	g.pod.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "game", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now().Rfc3339Copy()}},
	}}
	if err := w.c.Status().Patch(w.t.Context(), g.pod, client.MergeFrom(original)); err != nil {
		w.t.Fatalf("write the status of Pod %s: %v", name, err)
	}
	g.token = w.token(wellknown.TokenAudience, g.pod)
	return g
}

// create makes a Server.
func (w *world) create(name string, change ...func(*v1alpha1.Server)) *v1alpha1.Server {
	w.t.Helper()
	s := &v1alpha1.Server{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name},
		Spec:       v1alpha1.ServerSpec{Template: corev1.PodTemplateSpec{Spec: podSpec()}},
	}
	for _, f := range change {
		f(s)
	}
	if err := w.c.Create(w.t.Context(), s); err != nil {
		w.t.Fatalf("create Server %s: %v", name, err)
	}
	return s
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{
		// This API server has no admission that fills it in.
		ServiceAccountName: "default",
		Containers:         []corev1.Container{{Name: "game", Image: "none"}},
	}
}

func (w *world) token(audience string, pod *corev1.Pod) string {
	w.t.Helper()
	token, err := fixture.Token(w.t.Context(), cluster.client, w.ns, "default", audience, pod)
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}

// eventually waits until check returns nil.
func (w *world) eventually(what string, check func(ctx context.Context) error) {
	w.t.Helper()
	w.within(promptly, what, check)
}

// within waits for some time until check returns nil.
func (w *world) within(long time.Duration, what string, check func(ctx context.Context) error) {
	w.t.Helper()
	fixture.Eventually(w.t, long, what, check)
}

// server reads the Server.
func (g *game) server(ctx context.Context) *v1alpha1.Server {
	g.w.t.Helper()
	s := &v1alpha1.Server{}
	if err := g.w.c.Get(ctx, client.ObjectKey{Namespace: g.w.ns, Name: g.name}, s); err != nil {
		g.w.t.Fatalf("read Server %s: %v", g.name, err)
	}
	return s
}

// edit changes the Server as a person would.
func (g *game) edit(change func(*v1alpha1.Server)) {
	g.w.t.Helper()
	s := g.server(g.w.t.Context())
	original := s.DeepCopy()
	change(s)
	if err := g.w.c.Patch(g.w.t.Context(), s, client.MergeFrom(original)); err != nil {
		g.w.t.Fatalf("change Server %s: %v", g.name, err)
	}
}

// answer is an HTTP answer.
type answer struct {
	code int
	body []byte
	took time.Duration
}

// call makes a request of a replica.
func call(ctx context.Context, replica int, method, path, token string, body []byte, headers ...string) (answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://"+cluster.operators[replica].Address+path, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	began := time.Now()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, text, time.Since(began)}, err
}

// refused makes a report that must be refused.
func (g *game) refused(replica int, token string, body []byte, code int, sentence string) {
	g.w.t.Helper()
	got, err := call(g.w.t.Context(), replica, http.MethodPost, reportapi.ReportPath, token, body)
	if err != nil || got.code != code || !strings.Contains(string(got.body), sentence) {
		g.w.t.Errorf("answered %d %s, %v; want %d with %q", got.code, got.body, err, code, sentence)
	}
}

// report is the first of an instance, of a game that is Ready and empty.
func (g *game) report(sequence uint64, change ...func(*reportapi.Report)) *reportapi.Report {
	r := &reportapi.Report{Server: g.name, Instance: "one", Sequence: sequence, DeletionAllowed: true, Game: reportapi.Game{State: v1alpha1.GameReady}}
	for _, f := range change {
		f(r)
	}
	return r
}

func players(n int32) func(*reportapi.Report) {
	return func(r *reportapi.Report) { r.Game.Players = &v1alpha1.PlayersStatus{Current: n, Capacity: 200} }
}

func encode(t *testing.T, r *reportapi.Report) []byte {
	t.Helper()
	body, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// say makes a report that must be taken. A replica may not know the Pod yet.
func (g *game) say(replica int, r *reportapi.Report) (reportapi.Answer, time.Duration) {
	g.w.t.Helper()
	var a reportapi.Answer
	var took time.Duration
	body := encode(g.w.t, r)
	var headers []string
	if r.Memory != nil {
		memory, err := json.Marshal(r.Memory)
		if err != nil {
			g.w.t.Fatal(err)
		}
		headers = []string{reportapi.MemoryHeader, string(memory)}
	}
	g.w.eventually("the report is taken", func(ctx context.Context) error {
		got, err := call(ctx, replica, http.MethodPost, reportapi.ReportPath, g.token, body, headers...)
		if err != nil {
			return err
		}
		if got.code != http.StatusOK {
			return fmt.Errorf("answered %d %s", got.code, got.body)
		}
		took = got.took
		return json.Unmarshal(got.body, &a)
	})
	return a, took
}

// steady reports whether nothing changed until the answer stays as it is, and gives its
// version: the controller has written then what it had to.
func (g *game) steady(replica int, sequence *uint64, change ...func(*reportapi.Report)) string {
	g.w.t.Helper()
	// The controller leaves it unwritten for a while that the Pod has no node.
	g.w.eventually("the state of Server "+g.name+" is written", func(ctx context.Context) error {
		if g.server(ctx).Status.State == "" {
			return errors.New("it isn't")
		}
		return nil
	})
	seen := ""
	for {
		*sequence++
		a, took := g.say(replica, g.report(*sequence, append(change, func(r *reportapi.Report) { r.Seen = seen })...))
		if a.Version == seen && took > reportapi.HoldTime/2 {
			return seen
		}
		seen = a.Version
	}
}

// writes counts the changes of a Server's status by reports, from now on.
type writes struct {
	mu   sync.Mutex
	list []v1alpha1.Server
	stop func()
}

func (g *game) follow() *writes {
	g.w.t.Helper()
	first := g.server(g.w.t.Context())
	watcher, err := g.w.c.Watch(g.w.t.Context(), &v1alpha1.ServerList{}, client.InNamespace(g.w.ns),
		&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: first.ResourceVersion, FieldSelector: "metadata.name=" + g.name}})
	if err != nil {
		g.w.t.Fatalf("watch Server %s: %v", g.name, err)
	}
	w := &writes{stop: watcher.Stop}
	done := make(chan struct{})
	go func() {
		defer close(done)
		before := first
		for event := range watcher.ResultChan() {
			s, ok := event.Object.(*v1alpha1.Server)
			if !ok || event.Type != watch.Modified {
				continue
			}
			if sequenceOf(s) != sequenceOf(before) {
				w.mu.Lock()
				w.list = append(w.list, *s)
				w.mu.Unlock()
			}
			before = s
		}
	}()
	g.w.t.Cleanup(func() { watcher.Stop(); <-done })
	return w
}

func sequenceOf(s *v1alpha1.Server) int64 {
	if s.Status.Game == nil {
		return 0
	}
	return s.Status.Game.Sequence
}

func (w *writes) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.list)
}
