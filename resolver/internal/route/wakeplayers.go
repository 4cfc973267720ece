package route

import (
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/proto"
)

// playersOf are the players who may wake an ElasticService; nil: all. Where a list of allowed
// players is named and not known yet, it is empty. The status must be one that packPlayers has
// packed.
func playersOf(es *v1alpha1.ElasticService) *proto.Players {
	if sleepsOn(es) {
		return proto.NewPlayers("").Allow(nil)
	}
	if es.Spec.Wake == nil || es.Spec.Wake.Players == nil {
		return nil
	}
	spec, listed := es.Spec.Wake.Players, es.Status.WakePlayers
	if listed == nil {
		listed = &v1alpha1.WakePlayersStatus{}
	}
	p := proto.NewPlayers(spec.Message).Deny(named(spec.Deny))
	if len(spec.Allow) > 0 {
		p.Allow(named(spec.Allow))
	}
	if spec.AllowFrom != nil {
		p.Allow(listed.Allow)
	}
	if spec.DenyFrom != nil {
		p.Deny(listed.Deny)
	}
	return p
}

func named(all []v1alpha1.Player) proto.PlayerList {
	digests := make([]string, 0, len(all))
	for _, who := range all {
		digests = append(digests, v1alpha1.PlayerDigest(string(who)))
	}
	return proto.PackPlayers(digests)
}

// packPlayers makes the lists in an ElasticService's status take little memory.
func packPlayers(es *v1alpha1.ElasticService) {
	if listed := es.Status.WakePlayers; listed != nil {
		listed.Allow, listed.Deny = proto.PackPlayers(listed.Allow), proto.PackPlayers(listed.Deny)
	}
}
