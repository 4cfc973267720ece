package run

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/test/reports"
)

func TestAGameWithoutAnSDK(t *testing.T) {
	operator := reports.New(t)
	s := start(t, operator)
	operator.Wait("a state", func(r reportapi.Report) bool { return r.Game.State == v1alpha1.GameReady && !r.Game.Reported })

	s.want("GET", "/allow_delete", "", 200, `{"allowed":true}`)
	s.want("POST", "/allow_delete", `{"allowed":false}`, 200, `{"allowed":false}`)
	operator.Wait("a denial", func(r reportapi.Report) bool {
		return r.Game.Permission == v1alpha1.DeletionDenied && !r.DeletionAllowed && r.Game.Reported
	})
	s.want("GET", "/allow_delete", "", 200, `{"allowed":false}`)
	s.want("POST", "/allow_delete", `{"allowed":true}`, 200, `{"allowed":true}`)

	s.want("GET", "/players", "", 200, `{"current":0,"capacity":20}`)
	s.want("PUT", "/players", `{"current":3}`, 200, `{"current":3,"capacity":20}`)
	s.want("PUT", "/players", `{"current":2.0,"capacity":8e0}`, 200, `{"current":2,"capacity":8}`)
	s.want("PUT", "/players", `{"current":3,"capacity":8}`, 200, `{"current":3,"capacity":8}`)
	operator.Wait("players", func(r reportapi.Report) bool {
		return r.Game.Players != nil && r.Game.Players.Current == 3 && r.Game.Players.Capacity == 8
	})

	s.want("GET", "/health", "", 200, `{"healthy":true,"message":"nothing is wrong with the game"}`)
	s.want("POST", "/health", ``, 200, `{}`)
	s.want("POST", "/health", `{}`, 200, `{}`)

	s.want("GET", "/shutdown", "", 200, `{"shutdown":false,"drain":false}`)
	s.want("POST", "/shutdown", `{"shutdown":true}`, 200, `{}`)
	operator.Wait("the wish to end", func(r reportapi.Report) bool { return r.Game.State == v1alpha1.GameShutdown })
	s.want("POST", "/shutdown", `{"shutdown":false}`, 200, `{}`)
	operator.Wait("that taken back", func(r reportapi.Report) bool { return r.Game.State == v1alpha1.GameReady })
	operator.Tell(func(a *reportapi.Answer) { a.Drain = true })
	s.eventually("drain is told", func() bool { _, got := s.call("GET", "/shutdown", ""); return got == `{"shutdown":false,"drain":true}` })
	s.want("POST", "/shutdown", `{}`, 200, `{}`)
	operator.Tell(func(a *reportapi.Answer) { a.Shutdown = true })
	operator.Wait("the shutdown seen", func(r reportapi.Report) bool { return r.ShutdownSeen && r.DeletionAllowed })
	s.want("POST", "/shutdown", `{"shutdown":false}`, 409, `{"error":"the Server is being deleted or stopped already"}`)
}

func TestCallsThatAreRefused(t *testing.T) {
	s := start(t, reports.New(t))
	s.eventually("the capacity is known", func() bool { _, got := s.call("GET", "/players", ""); return strings.Contains(got, "20") })
	large := `{"allowed":true,"x":"` + strings.Repeat("x", 64<<10) + `"}`
	cases := map[string]struct {
		method, path, body string
		status             int
		says               string
	}{
		"nothing said":             {"POST", "/allow_delete", ``, 400, `the body must be like {\"allowed\":true}`},
		"a wrong type":             {"POST", "/allow_delete", `{"allowed":"yes"}`, 400, `allowed can't be a string`},
		"a wrong document":         {"POST", "/allow_delete", `[]`, 400, `the body must be like`},
		"an unknown field":         {"POST", "/allow_delete", `{"allowed":true,"x":1}`, 400, `unknown field`},
		"a field in another case":  {"POST", "/allow_delete", `{"Allowed":true}`, 400, `unknown field`},
		"half a document":          {"POST", "/allow_delete", `{"allowed":`, 400, `the body must be like`},
		"two documents":            {"POST", "/allow_delete", `{"allowed":true}{}`, 400, `the body must be like`},
		"too much":                 {"POST", "/allow_delete", large, 413, `the body has more than 65536 bytes`},
		"another method":           {"DELETE", "/allow_delete", ``, 405, `this path takes GET, POST only`},
		"no current":               {"PUT", "/players", `{"capacity":3}`, 400, `the body must be like`},
		"negative players":         {"PUT", "/players", `{"current":-1}`, 400, `current must be from 0 to 1000000, not -1`},
		"players above capacity":   {"PUT", "/players", `{"current":21}`, 400, `current must not be above capacity, which is 20, and is 21`},
		"a capacity beyond bounds": {"PUT", "/players", `{"current":0,"capacity":1000001}`, 400, `capacity must be from 0 to 1000000, not 1000001`},
		"half a player":            {"PUT", "/players", `{"current":1.5}`, 400, `1.5 isn't a whole number`},
		"a word for players":       {"PUT", "/players", `{"current":"3"}`, 400, `isn't a whole number`},
		"more than can be counted": {"PUT", "/players", `{"current":1e300}`, 400, `1e300 isn't a whole number`},
		"a ping that is too large": {"POST", "/health", large, 413, `too large`},
		"a wish that is none":      {"POST", "/shutdown", `{"shutdown":1}`, 400, `shutdown can't be a number`},
		"a path that isn't there":  {"GET", "/none", ``, 404, `Not Found`},
		"an SDK call too large":    {"PUT", "/metadata/annotation", `{"key":"a","value":"` + strings.Repeat("x", 256<<10) + `"}`, 413, `the body has more than 262144 bytes`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			status, answer := s.call(c.method, c.path, c.body)
			if status != c.status || !strings.Contains(answer, c.says) {
				t.Errorf("%d %s, want %d with %q", status, answer, c.status, c.says)
			}
		})
	}
	s.want("GET", "/allow_delete", "", 200, `{"allowed":true}`)
	s.want("GET", "/players", "", 200, `{"current":0,"capacity":20}`)
}

func TestNobodyElseCanActForTheGame(t *testing.T) {
	s := start(t, reports.New(t))
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:1": 200, "127.0.0.1": 200, "127.1.2.3:9358": 200, "[::1]:9358": 200, "::1": 200, "localhost.": 200,
		"example.com": 403, "127.0.0.1.example.com": 403, "10.0.0.9:9358": 403, "localhost.example.com": 403, "[::]": 403, "0.0.0.0": 403,
	} {
		s.additionalHeader = map[string]string{"Host": host}
		for _, path := range []string{"/allow_delete", "/shutdown"} {
			if got, text := s.call("GET", path, ""); got != want {
				t.Errorf("%s as %q: %d %s, want %d", path, host, got, text, want)
			}
		}
	}
	s.additionalHeader = nil
	if address := elsewhere(t); address != "" {
		for _, port := range []int{s.grpcPort, s.httpPort} {
			conn, err := net.Dial("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
			if err == nil {
				conn.Close()
				t.Errorf("port %d answers on %s", port, address)
			}
		}
	}
	// What the Pod's address shows can be read, and no more.
	for _, path := range []string{"/allow_delete", "/shutdown", "/players", "/gameserver", "/ready"} {
		for _, method := range []string{"GET", "POST", "PUT"} {
			if status, _ := s.callAt(s.public, method, path, "{}"); status != 404 {
				t.Errorf("%s %s: %d, want 404", method, path, status)
			}
		}
	}
}

// elsewhere is an address of this machine that isn't loopback's; empty: there is
// none.
func elsewhere(t *testing.T) string {
	t.Helper()
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && n.IP.To4() != nil {
			return n.IP.String()
		}
	}
	return ""
}

func TestLocalhostIsFoundByBothProtocols(t *testing.T) {
	if ln, err := net.Listen("tcp", "[::1]:0"); err == nil {
		ln.Close()
	} else {
		t.Skip("this machine has no ::1")
	}
	s := start(t, reports.New(t))
	if status, _ := s.callAt(net.JoinHostPort("::1", strconv.Itoa(s.httpPort)), "GET", "/health", ""); status != 200 {
		t.Errorf("status %d", status)
	}
	conn, err := net.Dial("tcp", net.JoinHostPort("::1", strconv.Itoa(s.grpcPort)))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestReadyzIsWhetherTheGameTakesPlayers(t *testing.T) {
	operator := reports.New(t)
	operator.Silent(true)
	s := start(t, operator, "--readiness=SDK")
	ready := func(want int, why string) {
		t.Helper()
		s.eventually(why, func() bool {
			status, text := s.callAt(s.public, "GET", "/readyz", "")
			return status == want && strings.Contains(text, why)
		})
	}
	ready(503, "the operator hasn't answered yet")
	operator.Silent(false)
	ready(503, "the game hasn't called Ready")
	s.want("POST", "/ready", `{}`, 200, `{}`)
	ready(200, "ok")
	operator.Tell(func(a *reportapi.Answer) { a.Drain = true })
	ready(503, "the Server gets no new players")
	operator.Tell(func(a *reportapi.Answer) { a.Drain = false; a.Shutdown = true })
	ready(503, "the Server is being deleted or stopped")
	if status, _ := s.callAt(s.public, "GET", "/healthz", ""); status != 200 {
		t.Errorf("healthz %d", status)
	}
	if _, text := s.callAt(s.public, "GET", "/metrics", ""); !strings.Contains(text, `dormouse_sidecar_reports_total{outcome="answered"}`) {
		t.Errorf("metrics %s", text)
	}
}
