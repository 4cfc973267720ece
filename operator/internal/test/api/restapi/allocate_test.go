package restapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/test/api/fixture"
)

// A hundred callers of two replicas ask at once for sixty Servers: sixty get one each, and forty are
// told to come again; and so once more after all were released.
func TestAHundredCallersGetSixtyServers(t *testing.T) {
	w := newWorld(t)
	const servers, callers, game = 60, 100, "pairs"
	for n := range servers {
		s := &v1alpha1.Server{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("pairs-%d", n), Labels: map[string]string{wellknown.GameTypeLabel: game}},
			Spec: v1alpha1.ServerSpec{Template: corev1.PodTemplateSpec{
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "game", Image: "game:1"}}},
			}},
		}
		if err := w.admin.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		before := s.DeepCopy()
		s.Status.State, s.Status.Address = v1alpha1.ServerReady, "192.0.2.1"
		s.Status.Ports = []v1alpha1.ServerPortStatus{{Name: "game", Port: 7777, Protocol: v1alpha1.ServerProtocolUDP}}
		s.Status.Game = &v1alpha1.GameStatus{State: v1alpha1.GameReady, PodUID: string(s.UID) + "-pod"}
		condition.SetAll(&s.Status.Conditions, s.Generation, metav1.Now(), condition.True(conditions.Ready, reasons.OK, "The game takes players."))
		if err := w.admin.Status().Patch(t.Context(), s, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	// All of them are known once as many can be had one after the other.
	for n := range servers {
		w.want(w.call(n%2, w.token, http.MethodPost, "/api/v1/allocate?wait=30s", fmt.Sprintf(`{"session":"first-%d","target":%q}`, n, game)), 200)
	}
	release := func(word string) {
		t.Helper()
		for n := range callers {
			r := w.call(n%2, w.token, http.MethodPost, "/api/v1/allocate/release", fmt.Sprintf(`{"session":"%s-%d"}`, word, n))
			if r.status != 200 && r.status != 404 {
				t.Fatalf("a release is answered with %v", r)
			}
		}
	}
	release("first")
	for _, word := range []string{"again", "once more"} {
		var mu sync.Mutex
		got, refused := map[string]int{}, 0
		var calls sync.WaitGroup
		for n := range callers {
			calls.Go(func() {
				r, err := call(t.Context(), w.replicas[n%2].URL, w.token, http.MethodPost, "/api/v1/allocate", fmt.Sprintf(`{"session":"%s-%d","target":%q}`, word, n, game))
				mu.Lock()
				defer mu.Unlock()
				switch code, _, _ := r.error(); {
				case err == nil && r.status == http.StatusOK && r.body["address"] == "192.0.2.1":
					got[fmt.Sprint(r.body["server"])]++
				case err == nil && r.status == http.StatusServiceUnavailable && code == "no_server" && r.header.Get("Retry-After") != "":
					refused++
				default:
					t.Errorf("caller %d: answered %v (%v)", n, r, err)
				}
			})
		}
		calls.Wait()
		if len(got) != servers || refused != callers-servers {
			t.Errorf("%s: %d Servers were given and %d callers refused, want %d and %d", word, len(got), refused, servers, callers-servers)
		}
		for server, n := range got {
			if n != 1 {
				t.Errorf("%s: %s was given %d times", word, server, n)
			}
		}
		var left v1alpha1.AllocationList
		if err := w.admin.List(t.Context(), &left, client.InNamespace(namespace)); err != nil || len(left.Items) != servers {
			t.Errorf("%s: there are %d Allocations, want %d (%v)", word, len(left.Items), servers, err)
		}
		release(word)
	}
}

// The same session has the same Server through both replicas, another wish of it is refused, and
// what a session let go it can't let go again.
func TestASessionHasOneServer(t *testing.T) {
	w := newWorld(t)
	const session = `{"session":"s","target":"nobodys"}`
	r := w.want(w.call(0, w.token, http.MethodPost, "/api/v1/allocate", session), 503)
	if code, _, _ := r.error(); code != "no_server" {
		t.Errorf("answered %v", r)
	}
	w.want(w.call(1, w.token, http.MethodPost, "/api/v1/allocate/release", `{"session":"s"}`), 404)
	for name, c := range map[string]struct{ query, body string }{
		"a wait that is none":     {"?wait=soon", session},
		"a wait too long":         {"?wait=11m", session},
		"a negative wait":         {"?wait=-1s", session},
		"a ttl that is none":      {"", `{"target":"x","ttl":"long"}`},
		"a ttl too short":         {"", `{"target":"x","ttl":"1ms"}`},
		"neither target nor more": {"", `{}`},
		"a kind without a target": {"", `{"kind":"Fleet","labels":{"a":"b"}}`},
		"a kind that there isn't": {"", `{"kind":"Pod","target":"x"}`},
		"a negative count":        {"", `{"target":"x","players":-1}`},
		"a session of 400 bytes":  {"", `{"target":"x","session":"` + strings.Repeat("é", 200) + `"}`},
	} {
		if r := w.call(0, w.token, http.MethodPost, "/api/v1/allocate"+c.query, c.body); r.status != 400 {
			t.Errorf("%s: answered %v, want 400", name, r)
		}
	}
	began := time.Now()
	if r := w.call(0, w.token, http.MethodPost, "/api/v1/allocate?wait=1s", `{"target":"nobodys"}`); r.status != 503 || time.Since(began) < time.Second {
		t.Errorf("after %s answered %v, want 503 once the wait is over", time.Since(began), r)
	}
	fixture.Eventually(t, wait, "nothing is left of it", w.noAllocations)
}
