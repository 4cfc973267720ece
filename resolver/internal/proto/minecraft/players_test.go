package minecraft

import (
	"strings"
	"testing"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

// listed are players of whom some may wake a service, or may not.
func listed(allow, deny []string) *proto.Players {
	p := proto.NewPlayers("")
	for _, who := range allow {
		p.Allow(proto.PackPlayers([]string{v1alpha1.PlayerDigest(who)}))
	}
	for _, who := range deny {
		p.Deny(proto.PackPlayers([]string{v1alpha1.PlayerDigest(who)}))
	}
	return p
}

func TestPlayersWhoMayNotWakeAreToldSo(t *testing.T) {
	const uuid, other = "32895283-5b63-3995-b9d6-cb235d314e4e", "853c80ef-3c37-49fd-aa49-938b674adae6"
	for name, c := range map[string]struct {
		login   string
		players *proto.Players
		want    proto.Action
	}{
		"an old client by its name":       {"login_47", listed([]string{"hazel"}, nil), proto.Hold},
		"an old client by its UUID":       {"login_47", listed([]string{uuid}, nil), proto.Refuse},
		"a client of 1.19 by its UUID":    {"login_760", listed([]string{uuid}, nil), proto.Refuse},
		"a client of 1.20.1 by its UUID":  {"login_763", listed([]string{uuid}, nil), proto.Hold},
		"a client of 1.20.4 by its UUID":  {"login_765", listed([]string{uuid}, nil), proto.Hold},
		"a client of 1.21.4 by its UUID":  {"login_769", listed([]string{uuid}, nil), proto.Hold},
		"another's UUID":                  {"login_769", listed([]string{other}, nil), proto.Refuse},
		"denied by its name":              {"login_763", listed(nil, []string{"Hazel"}), proto.Refuse},
		"denied by its UUID":              {"login_765", listed([]string{"Hazel"}, []string{uuid}), proto.Refuse},
		"somebody else is denied":         {"login_765", listed(nil, []string{other, "Bob"}), proto.Hold},
		"Forge's client, by another name": {"login_forge", listed([]string{"Bob"}, nil), proto.Refuse},
	} {
		for _, message := range []string{"", "Ask Anna."} {
			client := asleep()
			service := *client.Service
			if c.players.Message = message; message == "" {
				message = "you may not wake it up"
			}
			service.Players = c.players
			client.Service = &service
			v := Protocol{}.Inspect(recorded(t, c.login), client)
			if v.Action != c.want || (v.Action == proto.Refuse) != (v.Reason == proto.Denied) || (v.Action == proto.Refuse) != strings.Contains(string(v.Answer), message) {
				t.Errorf("%s: action %d for %q, told %q", name, v.Action, v.Reason, v.Answer)
			}
		}
	}
	// Whoever looks at the list is no player.
	client := asleep()
	service := *client.Service
	service.Players = listed([]string{"Bob"}, nil)
	client.Service = &service
	if v := (Protocol{}).Inspect(recorded(t, "status_765"), client); v.Action != proto.Answer {
		t.Errorf("a list gets action %d", v.Action)
	}
}
