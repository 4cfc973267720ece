package probes

import (
	"path/filepath"
	"strconv"
	"testing"

	"dormouse.dev/dormouse/test/env/node"
)

// Nobody leaves: this RakNet's server closes itself when a player does.
func TestBedrockPlayersCome(t *testing.T) {
	t.Parallel()
	needNode(t)
	port := freePort(t)
	server := start(t, node.Command(t.Context(), modules, filepath.Join("node", "bedrock.js"), strconv.Itoa(port)))
	server.wait("listening ")
	want := status{Capacity: 5, Name: "A dormouse"}
	eventually(t, "bedrock", port, want)
	for i, name := range []string{"Hazel", "Fiver"} {
		server.say("join %s", name)
		server.wait("joined " + name)
		want.Players = i + 1
		eventually(t, "bedrock", port, want)
	}
	if got, want := gamedig(t, "minecraftbedrock", port), (opinion{Name: "A dormouse", Players: 2, Capacity: 5}); got != want {
		t.Errorf("gamedig says %+v, want %+v", got, want)
	}
	got, err := ask(t, "bedrock", port)
	if err != nil || got.Version != "1.21.60" {
		t.Errorf("got version %q (error %v), want 1.21.60", got.Version, err)
	}
}
