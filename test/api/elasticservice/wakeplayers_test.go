package elasticservice_test

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
)

// listed says whom the lists let wake an ElasticService, and whom not.
func listed(allow, deny []string) check {
	digests := func(all []string) (out []string) {
		for _, who := range all {
			out = append(out, v1alpha1.PlayerDigest(who))
		}
		slices.Sort(out)
		return out
	}
	return func(es *v1alpha1.ElasticService) error {
		got := es.Status.WakePlayers
		if got == nil || !slices.Equal(got.Allow, digests(allow)) || !slices.Equal(got.Deny, digests(deny)) {
			return fmt.Errorf("the players are %+v, want %v and not %v", got, allow, deny)
		}
		return nil
	}
}

func TestListsOfPlayersHoldAsSoonAsTheyChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	listsCondition := func(status metav1.ConditionStatus, reason string) check {
		return hasCondition(conditions.WakePlayersKnown, status, reason)
	}
	w.deployment("game", 0)
	w.service("game")
	es := w.elastic("game", func(es *v1alpha1.ElasticService) {
		es.Spec.Ports = []v1alpha1.PortSpec{{Name: "game", Protocol: v1alpha1.ProtocolMinecraft}}
		es.Spec.Wake = &v1alpha1.Wake{Players: &v1alpha1.WakePlayers{
			AllowFrom: &v1alpha1.PlayerList{ConfigMap: "players", Key: "whitelist.json"},
			DenyFrom:  &v1alpha1.PlayerList{ConfigMap: "players", Key: "banned-players.json"},
		}}
	})
	w.want("game", promptly, listsCondition(metav1.ConditionFalse, reasons.ConfigMapNotFound), listed(nil, nil))
	lists := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "players", Labels: map[string]string{wellknown.PlayerListLabel: "true"}},
		Data: map[string]string{
			"whitelist.json":      `[{"uuid": "069a79f4-44e9-4726-a5be-fca90e38aaf5", "name": "Notch"}]`,
			"banned-players.json": `[{"name": "Griefer", "expires": "forever"}, {"name": "Old", "expires": "2020-01-01 00:00:00 +0000"}]`,
		},
	}
	if err := w.c.Create(t.Context(), lists); err != nil {
		t.Fatal(err)
	}
	w.want("game", promptly, ready, listsCondition(metav1.ConditionTrue, reasons.OK), listed([]string{"069a79f444e94726a5befca90e38aaf5", "notch"}, []string{"griefer"}))
	w.edit(lists, func() { lists.Data["whitelist.json"] = `[{"name": "Jeb_"}]` })
	w.want("game", promptly, listed([]string{"jeb_"}, []string{"griefer"}))
	// A mistake loses nobody.
	w.edit(lists, func() { lists.Data["whitelist.json"] = `[{"name": "Jeb_"}` })
	w.want("game", promptly, listsCondition(metav1.ConditionFalse, reasons.PlayerListInvalid), listed([]string{"jeb_"}, []string{"griefer"}))
	w.edit(lists, func() { lists.Labels = nil })
	w.want("game", promptly, listsCondition(metav1.ConditionFalse, reasons.ConfigMapNotFound), listed([]string{"jeb_"}, []string{"griefer"}))
	if err := w.read(t.Context(), "game", es); err != nil {
		t.Fatal(err)
	}
	w.edit(es, func() { es.Spec.Wake = nil })
	w.want("game", promptly, listsCondition(metav1.ConditionTrue, reasons.NotNeeded), func(es *v1alpha1.ElasticService) error {
		if es.Status.WakePlayers != nil {
			return fmt.Errorf("there are still %+v", es.Status.WakePlayers)
		}
		return nil
	})
}
