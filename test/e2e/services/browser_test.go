package services

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/test/e2e/suite"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/page"
)

// Somebody with a browser who comes to a service that sleeps sees the waiting page, and then, without
// doing anything, the service itself.
func TestABrowserWaitsByItself(t *testing.T) {
	t.Parallel()
	ctx, ns := suite.Namespace(t)
	if err := env.InstallDebian(ctx, "chromium", page.Program, os.Stderr); errors.Is(err, env.ErrNotInstalled) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	s := asleepSite(ctx, t, env.Game{Namespace: ns, SleepAfter: time.Hour, ChangeElastic: func(es *v1alpha1.ElasticService) {
		es.Spec.Ports[0].HTTP = &v1alpha1.PortHTTP{WaitingPage: &v1alpha1.WaitingPage{Title: "The shop opens"}}
	}})
	// The browser is outside the cluster.
	outside := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: s.address}) },
		Transport: &http.Transport{DialContext: s.client.Transport.(*http.Transport).DialContext, DisableKeepAlives: true},
	})
	t.Cleanup(outside.Close)
	t.Cleanup(outside.CloseClientConnections)
	b := page.Start(t, page.Views[0], os.Getenv("DORMOUSE_PAGE_SHOTS"))
	b.Open(outside.URL + "/healthz")
	b.Until("the waiting page", `document.body.innerText.includes("The shop opens")`, suite.PlayTimeout)
	b.Shot("waiting")
	b.Until("the service itself", `document.body.innerText.trim() === "ok"`, time.Minute)
	b.Shot("served")
}
