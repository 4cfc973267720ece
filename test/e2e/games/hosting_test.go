package games

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/env/node"
)

// hostingNamespace is where the REST API's servers are.
const hostingNamespace = "dormouse-servers"

// panel is a hosting provider's panel: it knows nothing but the REST API's address and a token.
type panel struct {
	t     *testing.T
	url   string
	token string
	http  *http.Client
}

// newPanel makes an account that has the role edit where the servers are.
func newPanel(ctx context.Context, t *testing.T) *panel {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: hostingNamespace, Name: "panel"}
	for _, o := range []client.Object{
		&corev1.ServiceAccount{ObjectMeta: meta},
		&rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: hostingNamespace, Name: "panel"}},
		},
	} {
		if err := suite.Cluster.Client.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	token, err := suite.Cluster.Token(ctx, hostingNamespace, "panel", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	address := suite.ClusterIP(ctx, t, env.Game{Namespace: env.SystemNamespace, Name: "dormouse-api"}, 80)
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		return suite.Cluster.DialPlayer(ctx, network, address)
	}
	return &panel{t: t, url: "http://" + address, token: token, http: &http.Client{Transport: &http.Transport{DialContext: dial}}}
}

// call calls the API, and reads its answer.
func (p *panel) call(ctx context.Context, method, path, body string) (int, map[string]any) {
	p.t.Helper()
	request, err := http.NewRequestWithContext(ctx, method, p.url+path, bytes.NewBufferString(body))
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+p.token)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	answer, err := p.http.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	read := map[string]any{}
	if err := json.NewDecoder(answer.Body).Decode(&read); err != nil {
		p.t.Fatalf("%s %s: answered %s, which is no JSON: %v", method, path, answer.Status, err)
	}
	return answer.StatusCode, read
}

// do makes a call that must succeed.
func (p *panel) do(ctx context.Context, method, path, body string) map[string]any {
	p.t.Helper()
	status, read := p.call(ctx, method, path, body)
	if status/100 != 2 {
		p.t.Fatalf("%s %s: answered %d %v", method, path, status, read)
	}
	return read
}

// A server's life as a hosting provider's panel sees it: made, started, played by a real player of a
// real game, asleep, woken by a player, stopped by hand, which no player changes, started again with
// its world as it was, and deleted.
func TestAServersLifeThroughTheAPI(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), suite.TestTimeout)
	t.Cleanup(cancel)
	w := newWorld(ctx, t, hostingNamespace, 0, func(s *v1alpha1.GameTypeSpec) {
		s.Sleep = &v1alpha1.SleepSpec{After: &metav1.Duration{Duration: 3 * time.Second}}
	})
	gt := &v1alpha1.GameType{ObjectMeta: metav1.ObjectMeta{Namespace: hostingNamespace, Name: w.game.Name}}
	t.Cleanup(func() {
		if err := suite.Cluster.Client.Delete(context.WithoutCancel(ctx), gt); err != nil {
			t.Error(err)
		}
	})
	offer := fmt.Appendf(nil, `{"metadata":{"labels":{%q:"true"}}}`, wellknown.CatalogLabel)
	if err := suite.Cluster.Client.Patch(ctx, gt, client.RawPatch("application/merge-patch+json", offer)); err != nil {
		t.Fatal(err)
	}
	p := newPanel(ctx, t)
	const path = "/api/v1/server/7/"
	const asked = `{"ram_gb":1,"disk_gb":1,"game":"world"}`

	wait := func(state string) map[string]any {
		t.Helper()
		var server map[string]any
		err := env.WaitUntil(ctx, "the server is "+state, func(ctx context.Context) (bool, error) {
			server, _ = p.do(ctx, http.MethodGet, path, "")["server"].(map[string]any)
			return server["state"] == state, nil
		})
		if err != nil {
			t.Fatalf("%v: %v", err, server)
		}
		return server
	}
	if status, read := p.call(ctx, http.MethodPost, path, asked); status != http.StatusCreated || read["success"] != true {
		t.Fatalf("answered %d %v", status, read)
	}
	if status, read := p.call(ctx, http.MethodPost, path, asked); status != http.StatusOK || read["success"] != true {
		t.Fatalf("the same again answered %d %v", status, read)
	}
	wait("Stopped")
	p.do(ctx, http.MethodPatch, path+"start", "")
	port := p.do(ctx, http.MethodPatch, path+"port/primary", "")["port"]
	server := wait("Ready")
	address := net.JoinHostPort(server["address"].(string), fmt.Sprint(port))
	w.mine(ctx, address, 0)

	wait("Asleep")
	w.mine(ctx, address, 1, 0)

	// Somebody plays while it is stopped: the server waits for them, and takes nobody new.
	player := w.join(ctx, address, 2, 0, 1)
	playing, err := suite.Cluster.WaitServer(ctx, client.ObjectKey{Namespace: hostingNamespace, Name: "server-7"}, "told of its player", func(s *v1alpha1.Server) bool {
		return s.Status.Players != nil && s.Status.Players.Current == 1
	})
	if err != nil {
		t.Fatal(err)
	}
	p.do(ctx, http.MethodPatch, path+"stop", "")
	stays(ctx, t, playing, 2*time.Second)
	if err := player.Leave(); err != nil {
		t.Errorf("who played when it was stopped was cut off: %v", err)
	}
	wait("Stopped")
	refused, cancelJoin := context.WithTimeout(ctx, 5*time.Second)
	defer cancelJoin()
	if m, err := node.Mine(refused, suite.Cluster, w.modules, address, 3); err == nil {
		_ = m.Leave()
		t.Error("a player got into a server that is stopped")
	}
	if s := p.do(ctx, http.MethodGet, path, "")["server"].(map[string]any); s["state"] != "Stopped" {
		t.Errorf("a player changed a stopped server to %v", s)
	}

	p.do(ctx, http.MethodPatch, path+"start", "")
	wait("Ready")
	if again := p.do(ctx, http.MethodPatch, path+"port/primary", "")["port"]; again != port {
		t.Errorf("its port was %v and is %v", port, again)
	}
	w.mine(ctx, address, 3, 0, 1, 2)

	p.do(ctx, http.MethodDelete, path, "")
	err = env.WaitUntil(ctx, "the server and its disk are gone", func(ctx context.Context) (bool, error) {
		status, _ := p.call(ctx, http.MethodGet, path, "")
		claim := &corev1.PersistentVolumeClaim{}
		err := suite.Cluster.Client.Get(ctx, client.ObjectKey{Namespace: hostingNamespace, Name: "server-7-world"}, claim)
		return status == http.StatusNotFound && apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
	if err != nil {
		t.Error(err)
	}
}
