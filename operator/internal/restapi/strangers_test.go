package restapi

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// Whoever shows rubbish from one address takes half of the questions about tokens: who comes from
// another one is let in with a token that nobody has shown before, to the API and to its page.
func TestAStrangersTokensKeepNobodyOut(t *testing.T) {
	const other = "198.51.100.2:4000"
	for name, stranger := range map[string]func(n int) string{
		"IPv4":            func(int) string { return somewhere },
		"mapped to IPv6":  func(n int) string { return []string{"[::ffff:192.0.2.1]:4000", somewhere}[n%2] },
		"IPv6, one /64":   func(n int) string { return fmt.Sprintf("[2001:db8::%x]:4000", n+1) },
		"IPv6 with zones": func(n int) string { return fmt.Sprintf("[fe80::1%%eth%d]:4000", n) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // all at once
				w := newWorld(t, logr.Discard(), nil)
				refused := 0
				for n := range 400 {
					method, path, token, form := http.MethodGet, "/api/v1/server/7", fmt.Sprintf("junk-%d", n), ""
					if n%2 == 0 {
						method, path, token, form = http.MethodPost, "/signin", "", "token="+token
					}
					if answer := w.call(method, path, token, stranger(n), form); answer.Code == http.StatusTooManyRequests {
						refused++
					}
				}
				if w.asked != unknownOfAddressAtOnce {
					t.Errorf("the API server was asked about %d of a stranger's tokens, want %d", w.asked, unknownOfAddressAtOnce)
				}
				if refused < 300 {
					t.Errorf("%d calls were too many", refused)
				}
				if counted := testutil.ToFloat64(w.gate.metrics.refuse.WithLabelValues("unknown_tokens")); counted != float64(refused) {
					t.Errorf("%v refusals are counted, want %d", counted, refused)
				}
				w.want(w.call(http.MethodGet, "/api/v1/server/7", "good-bob", other, ""), http.StatusOK)
				w.want(w.call(http.MethodPost, "/signin", "", other, "token=good-carol"), http.StatusSeeOther)
			})
		})
	}
}

// All addresses together are bounded as well.
func TestStrangersTogetherAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // all at once
		w := newWorld(t, logr.Discard(), nil)
		for n := range 4 * unknownAtOnce {
			w.call(http.MethodGet, "/api/v1/server/7", fmt.Sprintf("junk-%d", n), fmt.Sprintf("192.0.2.%d:4000", n%100), "")
		}
		if w.asked != unknownAtOnce {
			t.Errorf("the API server was asked about %d tokens, want %d", w.asked, unknownAtOnce)
		}
	})
}
