package report

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/internal/tokenfile"
)

func TestPeersTellTheNewest(t *testing.T) {
	c := cluster(t)
	// Both answer on one port, as pods do.
	one := start(t, c, "127.0.0.1:0")
	two := start(t, c, fmt.Sprintf("127.0.0.2:%d", one.peers.port))
	one.peers.self, two.peers.self = "operator-2", "operator-1" // the cluster has the first only
	for _, p := range []*Peers{one.peers, two.peers} {
		p.token = tokenfile.New(writeFile(t, "operator\n"))
	}
	two.say(next(6))
	got, err := two.peers.Recent(t.Context(), "games", "Fleet/lobby")
	if err != nil || len(got) != 1 || got["lobby-1"].Busy || got["lobby-1"].PodUID != "pod-1" {
		t.Fatalf("recent = %+v, %v; want lobby-1, not busy", got, err)
	}
	one.say(next(7, players(1)))
	two.peers.self = "operator-2"
	got, err = two.peers.Recent(t.Context(), "games", "Fleet/lobby")
	if err != nil || !got["lobby-1"].Busy {
		t.Errorf("recent = %+v, %v; want the newer report of the other replica, busy", got, err)
	}
	// A Pod in the place of the one that reported.
	if err := c.Delete(t.Context(), one.readPod()); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), pod("games", "lobby-1", "pod-1b", nil)); err != nil {
		t.Fatal(err)
	}
	if got, err = two.peers.Recent(t.Context(), "games", "Fleet/lobby"); err != nil || len(got) != 0 {
		t.Errorf("recent = %+v, %v; want nothing of a Pod that is gone", got, err)
	}
	one.stop()
	if got, err = two.peers.Recent(t.Context(), "games", "Fleet/lobby"); err == nil {
		t.Errorf("recent = %+v with a replica that doesn't answer, want an error", got)
	}
}

func TestNewer(t *testing.T) {
	r := func(instance string, sequence uint64, age int64, busy bool) reportapi.RecentReport {
		return reportapi.RecentReport{Instance: instance, Sequence: sequence, AgeMilliseconds: age, Busy: busy}
	}
	for name, c := range map[string]struct {
		a, b reportapi.RecentReport
		want bool
	}{
		"a later report, though it seems older":       {r("one", 8, 60, true), r("one", 7, 40, false), true},
		"an earlier report, though it seems younger":  {r("one", 7, 40, false), r("one", 8, 60, true), false},
		"another instance that is younger":            {r("two", 1, 100, false), r("one", 7, 9000, true), true},
		"another instance that is older":              {r("one", 7, 9000, true), r("two", 1, 100, false), false},
		"another instance of about the time, busy":    {r("two", 1, 900, true), r("one", 7, 100, false), true},
		"another instance of about the time, at rest": {r("two", 1, 100, false), r("one", 7, 900, true), false},
	} {
		if got := newer(c.a, c.b); got != c.want {
			t.Errorf("%s: newer is %t, want %t", name, got, c.want)
		}
	}
}

func TestWhoMayAskForRecentReports(t *testing.T) {
	r := start(t, cluster(t), "127.0.0.1:0")
	for name, c := range map[string]struct {
		token, query string
		code         int
		want         string
	}{
		"the operator":                         {"operator", "?namespace=games&owner=Fleet/lobby", 200, `{"servers":[]}`},
		"a sidecar":                            {"good", "?namespace=games&owner=Fleet/lobby", 401, "only that of the operator"},
		"a Pod that borrows the account":       {"impostor", "?namespace=games&owner=Fleet/lobby", 401, "not one of the operator's"},
		"nobody":                               {"", "?namespace=games&owner=Fleet/lobby", 401, "no bearer token"},
		"a namespace that is none":             {"operator", "?namespace=../x&owner=Fleet/lobby", 400, "namespace must be"},
		"a question about nobody":              {"operator", "?namespace=games", 400, "owner must be"},
		"a GameType that isn't there has none": {"operator", "?namespace=games&owner=GameType/none", 200, `{"servers":[]}`},
	} {
		t.Run(name, func(t *testing.T) {
			code, text := r.get(c.token, reportapi.RecentPath+c.query)
			if code != c.code || !strings.Contains(text, c.want) {
				t.Errorf("answered %d %s, want %d with %q", code, text, c.code, c.want)
			}
		})
	}
}

func writeFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
