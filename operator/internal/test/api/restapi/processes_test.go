package restapi_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/gameapi"
	"dormouse.dev/dormouse/operator/internal/restapi"
	"dormouse.dev/dormouse/test/api/fixture"
)

// beside is a stub for all sidecars: it takes the calls that show its code.
func beside(t *testing.T, code string) (port int, heard <-chan string) {
	t.Helper()
	calls := make(chan string, 10)
	s := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get(gameapi.CodeHeader) != code {
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		calls <- r.URL.Path
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := net.SplitHostPort(u.Host)
	if port, err = strconv.Atoi(text); err != nil {
		t.Fatal(err)
	}
	return port, calls
}

// With the API's own rights a game's call comes to the sidecar at the address in its Server's status,
// and its code opens nothing else.
func TestAGamesProcessCalls(t *testing.T) {
	code := gameapi.NewCode(namespace, "lobby.eu")
	port, heard := beside(t, code)
	w := newWorld(t, func(o *restapi.Options) { o.SidecarPort = port })

	s := &v1alpha1.Server{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lobby.eu", Annotations: map[string]string{wellknown.GameAPIAnnotation: "true"}},
		Spec:       v1alpha1.ServerSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "game", Image: "game:1"}}}}},
	}
	if err := w.admin.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.admin.Delete(t.Context(), s) })
	original := s.DeepCopy()
	s.Status.PodIP, s.Status.State, s.Status.Address = "127.0.0.1", v1alpha1.ServerReady, "192.0.2.7"
	if err := w.admin.Status().Patch(t.Context(), s, client.MergeFrom(original)); err != nil {
		t.Fatal(err)
	}
	const players = `{"serverName":"lobby.eu","namespace":"` + namespace + `","playerCount":3}`
	fixture.Eventually(t, wait, "a call is taken", func(ctx context.Context) error {
		if r, err := call(ctx, w.replicas[0].URL, code, http.MethodPost, "/setactiveplayers", players); err != nil || r.status != http.StatusOK {
			return fmt.Errorf("answered %v: %w", r, err)
		}
		return nil
	})
	if got := <-heard; got != gameapi.PlayersPath {
		t.Errorf("the sidecar was called at %s", got)
	}
	w.want(w.call(0, gameapi.NewCode(namespace, "lobby.eu"), http.MethodPost, "/setactiveplayers", players), 401)
	w.want(w.call(0, w.token, http.MethodPost, "/setactiveplayers", players), 401)
	w.want(w.call(0, code, http.MethodGet, "/api/v1/server", ""), 401)
	r := w.want(w.call(0, "", http.MethodGet, "/running?code="+code, ""), 200)
	if want := `[{"name":"lobby.eu","namespace":"` + namespace + `","publicIP":"192.0.2.7","ports":[],"activePlayers":0,"state":"Ready"}]`; r.text != want+"\n" {
		t.Errorf("/running is %s, want %s", r.text, want)
	}
}
