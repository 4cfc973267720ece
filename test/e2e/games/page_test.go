package games

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/page"
)

// offer offers the test game in the REST API's namespace, until the test ends.
func offer(ctx context.Context, t *testing.T, name string, change func(*v1alpha1.GameTypeSpec)) {
	t.Helper()
	gt := &v1alpha1.GameType{
		ObjectMeta: metav1.ObjectMeta{Namespace: hostingNamespace, Name: name, Labels: map[string]string{wellknown.CatalogLabel: "true"}},
		Spec:       v1alpha1.GameTypeSpec{Replicas: new(int32), Template: v1alpha1.ServerTemplate{Spec: suite.Cluster.ServerSpec()}},
	}
	change(&gt.Spec)
	if err := suite.Cluster.Client.Create(ctx, gt); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := suite.Cluster.Client.Delete(context.WithoutCancel(ctx), gt); err != nil {
			t.Error(err)
		}
	})
}

// A person with a browser makes a server, watches it come up, sees a player, and stops it: on a phone
// by day, and at a desk by night.
//
// It runs by itself, as the browser wants a processor.
func TestThePageShowsAServersLife(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), suite.TestTimeout)
	t.Cleanup(cancel)
	if err := env.InstallDebian(ctx, "chromium", page.Program, os.Stderr); errors.Is(err, env.ErrNotInstalled) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	offer(ctx, t, "arena", func(s *v1alpha1.GameTypeSpec) {
		s.Sleep = &v1alpha1.SleepSpec{After: &metav1.Duration{Duration: 10 * time.Minute}}
	})
	p := newPanel(ctx, t)
	// The browser is outside the cluster.
	at, err := url.Parse(p.url)
	if err != nil {
		t.Fatal(err)
	}
	outside := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(at); r.Out.Host = r.In.Host },
		Transport: p.http.Transport,
		// Streams are to arrive at once.
		FlushInterval: -1,
	})
	t.Cleanup(outside.Close)
	t.Cleanup(outside.CloseClientConnections)
	for i, view := range []page.View{page.Views[0], page.Views[len(page.Views)-1]} {
		id := int64(500 + i)
		key := client.ObjectKey{Namespace: hostingNamespace, Name: fmt.Sprintf("server-%d", id)}
		t.Cleanup(func() {
			p.do(context.WithoutCancel(ctx), http.MethodDelete, fmt.Sprintf("/api/v1/server/%d?force=true", id), "")
		})
		page.Walk(t, page.Start(t, view, os.Getenv("DORMOUSE_PAGE_SHOTS")), page.Site{
			URL: outside.URL, Token: p.token, ID: id, Game: "arena", Patience: time.Minute,
			Play: func(ctx context.Context) (func(), error) {
				s, err := suite.Cluster.WaitState(ctx, key, v1alpha1.ServerReady)
				if err != nil {
					return nil, err
				}
				leave := func() {
					if err := suite.Cluster.SetPlayers(ctx, s, 0); err != nil {
						t.Error(err)
					}
				}
				return leave, suite.Cluster.SetPlayers(ctx, s, 1)
			},
		})
	}
}
