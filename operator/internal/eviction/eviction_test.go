package eviction

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/valyala/fasthttp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/operator/internal/index"
)

// sidecar replies, and counts how often it is asked.
type sidecar struct {
	reply reportapi.Looked
	asked int
}

func (s *sidecar) LookPatiently(_ context.Context, server *v1alpha1.Server, podUID types.UID) reportapi.Looked {
	if server.Name == "lobby" && podUID == "pod" {
		s.asked++
	}
	return s.reply
}

func handler(t *testing.T, looker Looker, change func(*corev1.Pod)) *Handler {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	server := &v1alpha1.Server{ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "lobby", UID: "server"}}
	server.Status.Players = &v1alpha1.PlayersStatus{Current: 2}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "games", Name: "lobby", UID: "pod", Labels: map[string]string{wellknown.DeletionAllowedLabel: "true"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(server, v1alpha1.GroupVersion.WithKind("Server"))},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	change(pod)
	return &Handler{Cached: fake.NewClientBuilder().WithScheme(scheme).WithObjects(server, pod).
		WithIndex(&v1alpha1.Allocation{}, index.AllocationServer, index.AllocationServerKeys).Build(), Looker: looker}
}

func TestAnEvictionGoesByWhatTheSidecarSaysNow(t *testing.T) {
	t.Parallel()
	none := func(*corev1.Pod) {}
	type want struct {
		Allowed bool
		Asked   int
		Says    string
	}
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		reply  reportapi.Looked
		want   want
	}{
		"nobody plays":               {none, reportapi.Looked{Replied: true, DeletionAllowed: true}, want{Allowed: true, Asked: 1}},
		"somebody has just come":     {none, reportapi.Looked{Replied: true, Players: 3}, want{Asked: 1, Says: "3 play on it"}},
		"an empty game is Allocated": {none, reportapi.Looked{Replied: true}, want{Asked: 1, Says: "it is in use"}},
		"the sidecar doesn't answer": {none, reportapi.Looked{}, want{Allowed: true, Asked: 1, Says: "didn't say in time"}},
		// Also where the namespace has no budget, which a quota may have refused.
		"it was reported to be in use": {func(p *corev1.Pod) { p.Labels[wellknown.DeletionAllowedLabel] = "false" }, reportapi.Looked{}, want{Says: "2 play on it"}},
		"its Pod has not begun": {func(p *corev1.Pod) {
			p.Labels[wellknown.DeletionAllowedLabel], p.Status.Phase = "false", corev1.PodPending
		}, reportapi.Looked{}, want{Allowed: true}},
		"the Pod has ended": {func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, reportapi.Looked{}, want{Allowed: true}},
		"the Pod is ending": {func(p *corev1.Pod) {
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Now()}, []string{"example.com/kept"}
		}, reportapi.Looked{}, want{Allowed: true}},
		"the Pod is no Server's": {func(p *corev1.Pod) { p.OwnerReferences = nil }, reportapi.Looked{}, want{Allowed: true}},
		"there is no such Pod":   {func(p *corev1.Pod) { p.Name = "other" }, reportapi.Looked{}, want{Allowed: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &sidecar{reply: c.reply}
			response := handler(t, s, c.change).review(t.Context(), &admissionv1.AdmissionRequest{Namespace: "games", Name: "lobby"})
			says := strings.Join(response.Warnings, "")
			if r := response.Result; r != nil {
				says = r.Message
				// What kubectl drain and others take for a reason to try again.
				if r.Code != http.StatusTooManyRequests || r.Reason != metav1.StatusReasonTooManyRequests {
					t.Errorf("refused with %+v", r)
				}
			}
			got := want{response.Allowed, s.asked, says}
			if got.Says != "" && strings.Contains(got.Says, c.want.Says) && c.want.Says != "" {
				got.Says = c.want.Says
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// matchmaker gives the Server to somebody while its sidecar is asked.
type matchmaker struct {
	sidecar

	give func() error
}

func (m *matchmaker) LookPatiently(ctx context.Context, server *v1alpha1.Server, podUID types.UID) reportapi.Looked {
	if err := m.give(); err != nil {
		panic(err)
	}
	return m.sidecar.LookPatiently(ctx, server, podUID)
}

func TestAServerThatAnAllocationHasIsNotEvicted(t *testing.T) {
	t.Parallel()
	free := reportapi.Looked{Replied: true, DeletionAllowed: true}
	for name, c := range map[string]struct {
		// since says whether the Allocation has it since the sidecar was asked.
		since bool
		reply reportapi.Looked
		asked int
	}{
		"before the sidecar is asked":              {reply: free},
		"while the sidecar is asked":               {since: true, reply: free, asked: 1},
		"while a sidecar that doesn't say, either": {since: true, asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := &matchmaker{sidecar: sidecar{reply: c.reply}, give: func() error { return nil }}
			h := handler(t, m, func(*corev1.Pod) {})
			allocation := &v1alpha1.Allocation{
				ObjectMeta: metav1.ObjectMeta{Namespace: "games", Name: "match"},
				Status:     v1alpha1.AllocationStatus{State: v1alpha1.AllocationAllocated, ServerUID: "server"},
			}
			give := func() error { return h.Cached.(client.Client).Create(t.Context(), allocation) }
			if c.since {
				m.give = give
			} else if err := give(); err != nil {
				t.Fatal(err)
			}
			response := h.review(t.Context(), &admissionv1.AdmissionRequest{Namespace: "games", Name: "lobby"})
			if response.Allowed || m.asked != c.asked || !strings.Contains(response.Result.Message, "Allocation match has it") {
				t.Errorf("the answer is %+v, and the sidecar was asked %d times, want %d", response, m.asked, c.asked)
			}
		})
	}
}

func TestAReviewIsAnsweredByItsUID(t *testing.T) {
	t.Parallel()
	h := handler(t, &sidecar{reply: reportapi.Looked{Replied: true, Players: 1}}, func(*corev1.Pod) {})
	for body, code := range map[string]int{
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u","namespace":"games","name":"lobby"}}`: 200,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`:                                                          400,
		`nothing of the kind`: 400,
	} {
		rc := &fasthttp.RequestCtx{}
		rc.Request.SetBodyString(body)
		h.serve(rc)
		if got := rc.Response.StatusCode(); got != code {
			t.Errorf("%s is answered with %d, want %d", body, got, code)
		}
		if code != http.StatusOK {
			continue
		}
		var review admissionv1.AdmissionReview
		if err := json.Unmarshal(rc.Response.Body(), &review); err != nil {
			t.Fatal(err)
		}
		if r := review.Response; review.Kind != "AdmissionReview" || review.APIVersion != "admission.k8s.io/v1" || r == nil || r.UID != "u" || r.Allowed {
			t.Errorf("answered %s", rc.Response.Body())
		}
	}
}
