package proto

import (
	"testing"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// listed are players of whom some may wake a service, or may not.
func listed(allow, deny []string) *Players {
	p := NewPlayers("")
	for _, who := range allow {
		p.Allow(v1alpha1.PlayerDigest(who))
	}
	for _, who := range deny {
		p.Deny(v1alpha1.PlayerDigest(who))
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
