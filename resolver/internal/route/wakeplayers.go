package route

import (
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

// playersOf says which players may wake an ElasticService; nil: all. Where a list of those
// who may is named and not known yet, nobody is on it.
func playersOf(es *v1alpha1.ElasticService) *proto.Players {
	if es.Spec.Wake == nil || es.Spec.Wake.Players == nil {
		return nil
	}
	spec, listed := es.Spec.Wake.Players, es.Status.WakePlayers
	if listed == nil {
		listed = &v1alpha1.WakePlayersStatus{}
	}
	p := proto.NewPlayers(spec.Message).Deny(digests(spec.Deny)...)
	if len(spec.Allow) > 0 {
		p.Allow(digests(spec.Allow)...)
	}
	if spec.AllowFrom != nil {
		p.Allow(listed.Allow...)
	}
	if spec.DenyFrom != nil {
		p.Deny(listed.Deny...)
	}
	return p
}

func digests(all []v1alpha1.Player) (out []string) {
	for _, who := range all {
		out = append(out, v1alpha1.PlayerDigest(string(who)))
	}
	return out
}
