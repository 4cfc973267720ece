package probes

import (
	"path/filepath"
	"strconv"
	"testing"

	"dormouse.dev/dormouse/test/env/node"
)

func TestMinecraftPlayersComeAndGo(t *testing.T) {
	t.Parallel()
	needNode(t)
	server := start(t, node.Command(t.Context(), modules, filepath.Join("node", "minecraft.js")))
	port, err := strconv.Atoi(server.wait("listening "))
	if err != nil {
		t.Fatal(err)
	}
	want := status{Capacity: 7, Name: "A dormouse"}
	eventually(t, "minecraft", port, want)
	for i, name := range []string{"Hazel", "Fiver"} {
		server.say("join %s", name)
		server.wait("joined " + name)
		want.Players = i + 1
		eventually(t, "minecraft", port, want)
	}
	if got, want := gamedig(t, "minecraft", port), (opinion{Name: "A dormouse", Players: 2, Capacity: 7}); got != want {
		t.Errorf("gamedig says %+v, want %+v", got, want)
	}
	server.say("leave Hazel")
	server.wait("left Hazel")
	want.Players = 1
	eventually(t, "minecraft", port, want)
	got, err := ask(t, "minecraft", port)
	if err != nil || got.Version != "1.20.4" {
		t.Errorf("got version %q (error %v), want 1.20.4", got.Version, err)
	}
}
