package report

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/httpserver"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/internal/serviceauth"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

const within = 10 * time.Second

func lobby1() types.NamespacedName {
	return types.NamespacedName{Namespace: "games", Name: "lobby-1"}
}

// tokens are who has which token.
type tokens map[string]serviceauth.Identity

func (v tokens) Verify(_ context.Context, token string) (serviceauth.Identity, error) {
	switch id, ok := v[token]; {
	case ok:
		return id, nil
	case token == "early":
		return id, serviceauth.ErrKeysUnavailable
	default:
		return id, serviceauth.ErrAudience
	}
}

func ofPod(namespace, account, name, uid string) serviceauth.Identity {
	return serviceauth.Identity{Namespace: namespace, ServiceAccount: account, PodName: name, PodUID: uid}
}

func validTokens() tokens {
	return tokens{
		"good":     ofPod("games", "default", "lobby-1", "pod-1"),
		"other":    ofPod("games", "default", "lobby-2", "pod-2"),
		"old":      ofPod("games", "default", "lobby-1", "pod-0"),
		"ended":    ofPod("games", "default", "ended", "pod-4"),
		"unbound":  {Namespace: "games", ServiceAccount: "default"},
		"alone":    ofPod("games", "default", "alone", "pod-5"),
		"stranger": ofPod("games", "default", "stranger", "pod-6"),
		"orphan":   ofPod("games", "default", "orphan", "pod-7"),
		"former":   ofPod("games", "default", "former", "pod-8"),
		"operator": ofPod("system", "operator", "operator-1", "pod-9"),
		"signed":   {Namespace: "games", PodName: "signs", PodUID: "pod-11", ReportKey: "new"},
		"stolen":   {Namespace: "games", PodName: "signs", PodUID: "pod-11", ReportKey: "old"},
		"unasked":  {Namespace: "games", PodName: "lobby-1", PodUID: "pod-1", ReportKey: "new"},
		"impostor": ofPod("system", "operator", "alone-there", "pod-10"),
	}
}

func pod(namespace, name, uid string, owner *metav1.OwnerReference) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if owner != nil {
		owner.Controller = new(true)
		p.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return p
}

func ownedBy(name, uid string) *metav1.OwnerReference {
	return &metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Server", Name: name, UID: types.UID(uid)}
}

// replica is one operator's report server over loopback.
type replica struct {
	deniedSince string // reportapi.DeniedSinceHeader of what it is told
	memory      string // reportapi.MemoryHeader of what it is told
	t           *testing.T
	url         string
	c           client.WithWatch
	table       *table
	report      *Handler
	peers       *Peers
	writes      atomic.Int32
	// before is called before each write.
	before func() error
	stop   func()
}

// cluster is what replicas share.
func cluster(t *testing.T) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	inFleet := func(s *v1alpha1.Server) { s.Labels = map[string]string{wellknown.FleetLabel: "lobby"} }
	ended := pod("games", "ended", "pod-4", ownedBy("lobby-1", "server-1"))
	ended.Status.Phase = corev1.PodSucceeded
	stranger := ownedBy("lobby-1", "server-1")
	stranger.APIVersion = "example.com/v1"
	operator := pod("system", "operator-1", "pod-9", nil)
	operator.Labels = map[string]string{"app": "operator"}
	operator.Status.PodIP = "127.0.0.1"
	signs := pod("games", "signs", "pod-11", ownedBy("signs", "server-11"))
	signs.Annotations = map[string]string{wellknown.ReportKeyAnnotation: "new"}
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.Server{}).
		WithIndex(&v1alpha1.Server{}, IndexOwner, Owners).
		WithObjects(
			server(inFleet), server(inFleet, func(s *v1alpha1.Server) { s.Name, s.UID = "lobby-2", "server-2" }),
			server(func(s *v1alpha1.Server) { s.Name, s.UID = "former", "server-8b" }),
			pod("games", "lobby-1", "pod-1", ownedBy("lobby-1", "server-1")),
			pod("games", "lobby-2", "pod-2", ownedBy("lobby-2", "server-2")),
			pod("games", "alone", "pod-5", nil),
			pod("games", "stranger", "pod-6", stranger),
			pod("games", "orphan", "pod-7", ownedBy("orphan", "server-7")),
			pod("games", "former", "pod-8", ownedBy("former", "server-8")),
			pod("system", "alone-there", "pod-10", nil),
			server(func(s *v1alpha1.Server) { s.Name, s.UID = "signs", "server-11" }),
			ended, operator, signs,
		).Build()
}

// whole holds a first report for as long as any other.
func whole(hold time.Duration) time.Duration { return hold }

func start(t *testing.T, c client.WithWatch, address string, change ...func(*replica)) *replica {
	t.Helper()
	r := &replica{t: t, table: newTable(), before: func() error { return nil }}
	r.c = interceptor.NewClient(c, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if err := r.before(); err != nil {
				return err
			}
			defer r.writes.Add(1)
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	writer := newWriter(r.c, r.c, r.table, nil, logr.Discard())
	d := newDesk(time.Millisecond, takers)
	r.report = &Handler{verifier: validTokens(), cached: r.c, table: r.table, writer: writer, hold: within, firstHold: whole, maxHeld: 100, desk: d, line: newLine(d, lookers)}
	operators := Operators{Account: types.NamespacedName{Namespace: "system", Name: "operator"}, Selector: labels.SelectorFromSet(labels.Set{"app": "operator"})}
	web := httpserver.New(httpserver.Options{Address: address, MaxBodyBytes: 4 << 10, ManyConnections: true, Log: logr.Discard()})
	for _, f := range change {
		f(r)
	}
	r.report.Register(web)
	recent := &recentHandler{verifier: validTokens(), cached: r.c, operators: operators, table: r.table}
	recent.register(web)
	lookHandler{recent}.register(web)
	if err := web.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.url = "http://" + web.Addr().String()
	transport := &http.Transport{DisableKeepAlives: true}
	r.peers = &Peers{cached: r.c, table: r.table, operators: operators, http: &http.Client{Transport: transport}, port: web.Addr().(*net.TCPAddr).Port}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = web.Start(ctx) })
	running.Go(func() { _ = writer.Start(ctx) })
	r.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(r.stop)
	return r
}

// post makes a call and gives its status and body.
func (r *replica) post(token string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.url+reportapi.ReportPath, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if r.memory != "" {
		req.Header.Set(reportapi.MemoryHeader, r.memory)
	}
	if r.deniedSince != "" {
		req.Header.Set(reportapi.DeniedSinceHeader, r.deniedSince)
	}
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * within}).Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, text, err
}

// get asks as another replica does, and gives the answer's status and body.
func (r *replica) get(token, path string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.url+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(text)
}

// say makes a report that must be taken.
func (r *replica) say(said *reportapi.Report) reportapi.Answer {
	r.t.Helper()
	text, err := json.Marshal(said)
	if err != nil {
		r.t.Fatal(err)
	}
	code, answer, err := r.post("good", text)
	if err != nil || code != http.StatusOK {
		r.t.Fatalf("answered %d %s, %v; want 200", code, answer, err)
	}
	var a reportapi.Answer
	if err := json.Unmarshal(answer, &a); err != nil {
		r.t.Fatal(err)
	}
	return a
}

// hold makes a report that is to be held, and waits until it is.
func (r *replica) hold(said *reportapi.Report) <-chan reportapi.Answer {
	r.t.Helper()
	answers := make(chan reportapi.Answer, 1)
	said.Seen = Answer(r.read(), r.readPod(), &v1alpha1.GameType{}).Version
	text, err := json.Marshal(said)
	if err != nil {
		r.t.Fatal(err)
	}
	go func() {
		defer close(answers)
		code, answer, err := r.post("good", text)
		var a reportapi.Answer
		if err == nil && code == http.StatusOK && json.Unmarshal(answer, &a) == nil {
			answers <- a
		}
	}()
	r.eventually("the report is held", func() bool {
		last := r.table.last("server-1")
		return last != nil && last.report.Sequence == said.Sequence && r.report.held.Load() > 0
	})
	return answers
}

func (r *replica) eventually(what string, ok func() bool) {
	r.t.Helper()
	over := time.After(within)
	for !ok() {
		select {
		case <-over:
			r.t.Fatalf("not within %s: %s", within, what)
		case <-time.After(time.Millisecond):
		}
	}
}

func (r *replica) read() *v1alpha1.Server {
	r.t.Helper()
	s := &v1alpha1.Server{}
	if err := r.c.Get(r.t.Context(), lobby1(), s); err != nil {
		r.t.Fatal(err)
	}
	return s
}

func (r *replica) readPod() *corev1.Pod {
	r.t.Helper()
	p := &corev1.Pod{}
	if err := r.c.Get(r.t.Context(), lobby1(), p); err != nil {
		r.t.Fatal(err)
	}
	return p
}

func next(sequence uint64, change ...func(*reportapi.Report)) *reportapi.Report {
	return report(append([]func(*reportapi.Report){func(r *reportapi.Report) { r.Sequence = sequence }}, change...)...).report
}
