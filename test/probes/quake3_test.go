package probes

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"dormouse.dev/dormouse/test/env"
)

func TestQuake3CountsPeopleAndNoBots(t *testing.T) {
	t.Parallel()
	needDebian(t, "qstat", "quakestat")
	port := freePort(t)
	cmd, err := env.OpenArena(t.Context(), os.Stderr, t.TempDir(), "A dormouse", port)
	mayInstall(t, err)
	server := start(t, cmd)

	// The server answers an address ten times, and then once a second.
	const every = 1100 * time.Millisecond
	people := status{Capacity: 12, Name: "A dormouse"}
	all := opinion{Capacity: 12, Name: "A dormouse"}
	check := func() {
		t.Helper()
		poll(t, "quake3", every, people, func() (status, error) {
			got, err := ask(t, "quake3", port)
			got.Version = ""
			return got, err
		})
		poll(t, "qstat", every, all, func() (opinion, error) { return quakestat(t, "-q3s", port) })
	}
	server.wait("AAS initialized.")
	check()

	server.say("addbot sarge 3")
	server.say("addbot gargoyle 3")
	all.Players, all.Bots = 2, 2
	server.wait(`broadcast: print "Gargoyle^7 entered`)
	check()

	joinQuake3(t, port, "Hazel")
	people.Players, all.Players = 1, 3
	check()

	server.say("kick sarge")
	server.wait("ClientDisconnect: ")
	all.Players, all.Bots = 2, 1
	check()

	server.say("kick Hazel")
	server.wait("ClientDisconnect: ")
	people.Players, all.Players = 0, 1
	check()
}

// quakestat asks with Debian's qstat. It tells bots by their ping.
func quakestat(t *testing.T, kind string, port int) (opinion, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "quakestat", "-json", "-P", "-interval", "0.2", kind, fmt.Sprintf("127.0.0.1:%d", port)).Output()
	if err != nil {
		t.Fatalf("ask with qstat: %v", err)
	}
	var servers []struct {
		Status     string
		Name       string
		NumPlayers int
		MaxPlayers int
		Players    []struct{ Ping int }
	}
	if err := json.Unmarshal(out, &servers); err != nil {
		return opinion{}, fmt.Errorf("read %q: %w", out, err)
	}
	if len(servers) != 1 || servers[0].Status != "online" {
		return opinion{}, fmt.Errorf("qstat says %s", out)
	}
	o := opinion{Name: servers[0].Name, Players: servers[0].NumPlayers, Capacity: servers[0].MaxPlayers}
	for _, p := range servers[0].Players {
		if p.Ping == 0 {
			o.Bots++
		}
	}
	return o, nil
}
