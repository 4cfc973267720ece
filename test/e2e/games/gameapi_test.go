package games

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/gameapi"
	"dormouse.dev/dormouse/test/e2e/suite"
)

// lists asks which servers run.
func (p *panel) lists(ctx context.Context, code string) []string {
	p.t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/running?code="+url.QueryEscape(code), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	answer, err := p.http.Do(request)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	var list []struct{ Name string }
	if err == nil {
		err = json.Unmarshal(text, &list)
	}
	if err != nil {
		p.t.Fatalf("/running: answered %s %s: %v", answer.Status, text, err)
	}
	names := make([]string, 0, len(list))
	for _, s := range list {
		names = append(names, s.Name)
	}
	return names
}

// A game's process says by HTTP what it would say by an SDK, with the code that it has in its
// environment: what it says is in its Server's status. Another code says nothing.
func TestAGamesProcessSpeaksThroughTheAPI(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), suite.TestTimeout)
	t.Cleanup(cancel)
	s := &v1alpha1.Server{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: hostingNamespace, GenerateName: "process-", Annotations: map[string]string{wellknown.GameAPIAnnotation: "true"},
		},
		Spec: suite.Cluster.ServerSpec(),
	}
	if err := suite.Cluster.Client.Create(ctx, s); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		force := []byte(`{"spec":{"deletion":{"force":true}}}`)
		ctx := context.WithoutCancel(ctx)
		_ = suite.Cluster.Client.Patch(ctx, s, client.RawPatch("application/merge-patch+json", force)) // it may be gone
		if err := client.IgnoreNotFound(suite.Cluster.Client.Delete(ctx, s)); err != nil {
			t.Error(err)
		}
	})
	key := client.ObjectKeyFromObject(s)
	if _, err := suite.Cluster.WaitState(ctx, key, v1alpha1.ServerReady); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{}
	if err := suite.Cluster.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: gameapi.SecretName(s.Name, s.UID)}, secret); err != nil {
		t.Fatal(err)
	}
	code := string(secret.Data[gameapi.SecretKey])
	pod := podOf(s)
	if err := suite.Cluster.Client.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil {
		t.Fatal(err)
	}
	game, err := suite.Cluster.Container(*pod)
	if err != nil {
		t.Fatal(err)
	}
	environment, err := game.Environment()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"SERVER_NAME=" + s.Name, "SERVER_NAMESPACE=" + s.Namespace, "API_SERVER_URL=http://dormouse-api.dormouse-system.svc", "API_SERVER_CODE=" + code} {
		if !slices.Contains(environment, want) {
			t.Errorf("the game has no %s", want)
		}
	}

	p := newPanel(ctx, t)
	p.token = "" // the code is all
	say := func(path, code, field string, value any) int {
		t.Helper()
		body := fmt.Sprintf(`{"serverName":%q,"namespace":%q,%q:%v}`, s.Name, s.Namespace, field, value)
		status, _ := p.call(ctx, http.MethodPost, path+"?code="+url.QueryEscape(code), body)
		return status
	}
	said := func(what string, is func(*v1alpha1.Server) bool) {
		t.Helper()
		if _, err := suite.Cluster.WaitServer(ctx, key, what, is); err != nil {
			t.Fatal(err)
		}
	}
	if status := say("/setactiveplayers", code, "playerCount", 3); status != http.StatusOK {
		t.Fatalf("players: answered %d", status)
	}
	said("told of its players", func(s *v1alpha1.Server) bool {
		return s.Status.Players != nil && s.Status.Players.Current == 3 && !s.Status.DeletionAllowed
	})
	if status := say("/setactiveplayers", gameapi.NewCode(s.Namespace, s.Name), "playerCount", 0); status != http.StatusUnauthorized {
		t.Errorf("another code: answered %d", status)
	}
	if status := say("/setdgsstate", code, "state", `"Running"`); status != http.StatusOK {
		t.Errorf("state: answered %d", status)
	}
	said("Allocated", func(s *v1alpha1.Server) bool {
		return s.Status.State == v1alpha1.ServerAllocated && s.Status.Players.Current == 3
	})
	if running := p.lists(ctx, code); !slices.Contains(running, s.Name) {
		t.Errorf("%v run, without %s", running, s.Name)
	}
	if status := say("/setdgsmarkedfordeletion", code, "markedForDeletion", true); status != http.StatusOK {
		t.Errorf("deletion: answered %d", status)
	}
	if status := say("/setactiveplayers", code, "playerCount", 0); status != http.StatusOK {
		t.Errorf("players: answered %d", status)
	}
	if err := suite.Cluster.WaitGone(ctx, s); err != nil {
		t.Errorf("marked and empty, it stays: %v", err)
	}
}
