package proto

import (
	"fmt"
	"slices"
	"testing"
	"unsafe"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// listed are players of whom some may wake a service, or may not.
func listed(allow, deny []string) *Players {
	p := NewPlayers("")
	for _, who := range allow {
		p.Allow(PackPlayers([]string{v1alpha1.PlayerDigest(who)}))
	}
	for _, who := range deny {
		p.Deny(PackPlayers([]string{v1alpha1.PlayerDigest(who)}))
	}
	return p
}

func TestWhoMayWakeIsKnownByNameOrUUID(t *testing.T) {
	const notch, other = "069a79f444e94726a5befca90e38aaf5", "853c80ef3c3749fdaa49938b674adae6"
	for name, c := range map[string]struct {
		players *Players
		name    string
		uuid    string
		want    bool
	}{
		"no rule":               {nil, "Anna", notch, true},
		"a name":                {listed([]string{"anna"}, nil), "Anna", other, true},
		"another name":          {listed([]string{"anna"}, nil), "Anna2", other, false},
		"a UUID with dashes":    {listed([]string{"069A79F4-44e9-4726-a5be-fca90e38aaf5"}, nil), "Renamed", notch, true},
		"a UUID":                {listed([]string{notch}, nil), "Renamed", notch, true},
		"nobody's UUID":         {listed([]string{notch}, nil), "Old", "", false},
		"denied by name":        {listed(nil, []string{"GRIEFER"}), "griefer", notch, false},
		"denied by UUID":        {listed(nil, []string{notch}), "Renamed", notch, false},
		"not denied":            {listed(nil, []string{notch}), "Anna", other, true},
		"allowed, and denied":   {listed([]string{"anna"}, []string{notch}), "Anna", notch, false},
		"a name that is a UUID": {listed([]string{notch}, nil), notch, "", true},
		"no name and no UUID":   {listed([]string{"anna"}, []string{"bob"}), "", "", false},
	} {
		if got := c.players.May(c.name, c.uuid); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Many services may name one list of thousands: each of its players is found in it, and it
// takes its memory once.
func TestAListOfPlayersIsPackedOnce(t *testing.T) {
	var digests []string
	for i := range v1alpha1.MaxListedPlayers {
		digests = append(digests, v1alpha1.PlayerDigest(fmt.Sprint("player-", i)))
	}
	list := PackPlayers(digests)
	again := PackPlayers(append(slices.Clone(digests[100:]), digests[:200]...)) // in another order, some twice
	if len(list) != 1 || len(list[0]) != 12*len(digests) || unsafe.StringData(list[0]) != unsafe.StringData(again[0]) {
		t.Fatalf("%d strings, the first of %d bytes; the same list has memory of its own: %t",
			len(list), len(list[0]), unsafe.StringData(list[0]) != unsafe.StringData(again[0]))
	}
	if twice := PackPlayers(list); unsafe.StringData(list[0]) != unsafe.StringData(twice[0]) {
		t.Error("a list that is packed once more isn't the same")
	}
	p := NewPlayers("").Deny(list)
	for i := range v1alpha1.MaxListedPlayers {
		if p.May(fmt.Sprint("Player-", i), "") {
			t.Fatalf("player %d isn't found", i)
		}
	}
	if !p.May("player-", "") || !p.May("", "") {
		t.Error("somebody is on the list who isn't")
	}
	if got := PackPlayers([]string{"short", ""}); got != nil {
		t.Errorf("what is no digest makes a list of %q", got)
	}
}
