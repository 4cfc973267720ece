package route

import (
	"testing"

	"dormouse.dev/dormouse/api/v1alpha1"
)

func TestPlayersOfTheSpecAndOfListsMayWakeAService(t *testing.T) {
	t.Parallel()
	list := &v1alpha1.PlayerList{ConfigMap: "players", Key: "list.json"}
	digest := v1alpha1.PlayerDigest
	for name, c := range map[string]struct {
		players *v1alpha1.WakePlayers
		status  *v1alpha1.WakePlayersStatus
		may     map[string]bool
	}{
		"no rule":                     {nil, &v1alpha1.WakePlayersStatus{Deny: []string{digest("anna")}}, map[string]bool{"Anna": true}},
		"names":                       {&v1alpha1.WakePlayers{Allow: []v1alpha1.Player{"Anna"}}, nil, map[string]bool{"anna": true, "Bob": false}},
		"a list of who may":           {&v1alpha1.WakePlayers{AllowFrom: list}, &v1alpha1.WakePlayersStatus{Allow: []string{digest("anna")}}, map[string]bool{"Anna": true, "Bob": false}},
		"a list that isn't known yet": {&v1alpha1.WakePlayers{AllowFrom: list}, nil, map[string]bool{"Anna": false}},
		"an empty list":               {&v1alpha1.WakePlayers{AllowFrom: list}, &v1alpha1.WakePlayersStatus{}, map[string]bool{"Anna": false}},
		"bans":                        {&v1alpha1.WakePlayers{DenyFrom: list}, &v1alpha1.WakePlayersStatus{Deny: []string{digest("bob")}}, map[string]bool{"Anna": true, "Bob": false}},
		"bans that aren't known yet":  {&v1alpha1.WakePlayers{DenyFrom: list}, nil, map[string]bool{"Anna": true}},
		"all of it": {
			&v1alpha1.WakePlayers{Allow: []v1alpha1.Player{"Anna", "Bob"}, AllowFrom: list, DenyFrom: list},
			&v1alpha1.WakePlayersStatus{Allow: []string{digest("carl")}, Deny: []string{digest("bob")}},
			map[string]bool{"Anna": true, "Bob": false, "Carl": true, "Dora": false},
		},
		"a list that is named no more": {&v1alpha1.WakePlayers{Deny: []v1alpha1.Player{"x"}}, &v1alpha1.WakePlayersStatus{Deny: []string{digest("bob")}}, map[string]bool{"Bob": true}},
	} {
		es := newService("lobby", "u1", 0).port("game", v1alpha1.ProtocolMinecraft, 10001)
		es.Spec.Wake, es.Status.WakePlayers = &v1alpha1.Wake{Players: c.players}, c.status
		players := Build(es.ElasticService).Ports[0].Players
		for who, want := range c.may {
			if got := players.May(who, ""); got != want {
				t.Errorf("%s: %s may is %t", name, who, got)
			}
		}
	}
}
