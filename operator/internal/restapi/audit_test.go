package restapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"dormouse.dev/dormouse/internal/program"
	"dormouse.dev/dormouse/operator/internal/restapi/access"
)

const somewhere = "192.0.2.1:4000"

// audited runs a test with the API and its log as the program has it. No time passes meanwhile, so
// that all is within one second.
func audited(t *testing.T, test func(*testing.T, *world, *bytes.Buffer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		test(t, newWorld(t, logr.FromSlogHandler(program.Logs{Sampled: true}.Handler(&logged)), nil), &logged)
	})
}

// changes are the lines about changes, without their time.
func changes(t *testing.T, logged *bytes.Buffer) (all []map[string]any) {
	t.Helper()
	for decoder := json.NewDecoder(logged); decoder.More(); {
		line := map[string]any{}
		if err := decoder.Decode(&line); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line["msg"].(string), "Change asked for") {
			delete(line, "time")
			all = append(all, line)
		}
	}
	return all
}

// Who shows no token, or none that is good, writes no line, and keeps nobody else's out of the log.
func TestStrangersKeepNoChangeOutOfTheLog(t *testing.T) {
	audited(t, func(t *testing.T, w *world, logged *bytes.Buffer) {
		for n := range 500 {
			w.want(w.call(http.MethodPost, "/api/v1/server/7/wake", "", somewhere, ""), http.StatusUnauthorized)
			w.call(http.MethodPost, "/api/v1/server/7/wake", fmt.Sprintf("junk-%d", n%10), somewhere, "")
		}
		w.want(w.call(http.MethodDelete, "/api/v1/server/7?keep_disk=true", "good-alice", somewhere, ""), http.StatusOK)
		want := []map[string]any{{
			"level": "INFO", "msg": "Change asked for", "user": "alice", "operation": "delete-server",
			"path": "/api/v1/server/7?keep_disk=true", "status": 200.0, "from": somewhere,
		}}
		if diff := cmp.Diff(want, changes(t, logged)); diff != "" {
			t.Errorf("the log of changes (-want +got):\n%s", diff)
		}
	})
}

// However many changes there are in a second, by the API or on its page, each has its line.
func TestEachChangeHasItsLine(t *testing.T) {
	audited(t, func(t *testing.T, w *world, logged *bytes.Buffer) {
		for n := range 300 {
			w.want(w.call(http.MethodPatch, "/api/v1/server/7", "good-alice", somewhere, fmt.Sprintf(`{"ram_gb":%d}`, 1+n%2)), http.StatusOK)
		}
		if got := len(changes(t, logged)); got != 300 {
			t.Errorf("%d lines of 300 calls", got)
		}
		alice := person{&access.User{Name: "alice"}}
		for n := range 300 {
			if err := w.people.Stop(t.Context(), alice, 8, n%2 == 0); err == nil {
				t.Fatal("there is a server 8")
			}
		}
		if got := len(changes(t, logged)); got != 300 {
			t.Errorf("%d lines of 300 forms", got)
		}
	})
}

// A user fills the log neither with calls that are too many nor with long ones.
func TestAUsersLinesAreBounded(t *testing.T) {
	audited(t, func(t *testing.T, w *world, logged *bytes.Buffer) {
		w.gate.burst = 10
		for n := range 5000 {
			status := http.StatusBadRequest
			if n >= w.gate.burst {
				status = http.StatusTooManyRequests
			}
			w.want(w.call(http.MethodDelete, "/api/v1/server/7?x="+strings.Repeat("a", 1000), "good-alice", somewhere, ""), status)
		}
		all := changes(t, logged)
		if len(all) < 20 || len(all) > 200 {
			t.Errorf("%d lines of 5000 calls, of which 10 were not too many", len(all))
		}
		if path := all[0]["path"].(string); len(path) > 310 || !strings.HasPrefix(path, "/api/v1/server/7?x=a") {
			t.Errorf("the path is %s", path)
		}
	})
}
