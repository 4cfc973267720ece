package elasticservice

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/condition"
)

// +kubebuilder:rbac:groups="",resources=configmaps,verbs=list;watch

// indexPlayers finds ElasticServices by the ConfigMaps with their lists of players.
const indexPlayers = "spec.wake.players"

// observedLists are what a pass saw of the lists of players that the spec names.
type observedLists struct {
	// allow and deny are those on the lists; nil where there is no list, or it can't be
	// read.
	allow, deny *[]string
	// next is when a ban ends next; zero when none does.
	next time.Time
	// obstacle is why a list can't be read.
	obstacle *obstacle
}

// playerLists are the lists that an ElasticService's spec names.
func playerLists(es *v1alpha1.ElasticService) (lists []v1alpha1.PlayerList) {
	if es.Spec.Wake == nil || es.Spec.Wake.Players == nil {
		return nil
	}
	for _, l := range []*v1alpha1.PlayerList{es.Spec.Wake.Players.AllowFrom, es.Spec.Wake.Players.DenyFrom} {
		if l != nil {
			lists = append(lists, *l)
		}
	}
	return lists
}

func playerListKeys(o client.Object) (names []string) {
	if es, ok := o.(*v1alpha1.ElasticService); ok {
		for _, l := range playerLists(es) {
			names = append(names, l.ConfigMap)
		}
	}
	return slices.Compact(names)
}

// byPlayerList finds the ElasticServices whose players a ConfigMap lists.
func (r *Reconciler) byPlayerList(ctx context.Context, o client.Object) []reconcile.Request {
	return r.find(ctx, client.InNamespace(o.GetNamespace()), client.MatchingFields{indexPlayers: o.GetName()})
}

// observeLists reads the lists of players.
func (r *Reconciler) observeLists(ctx context.Context, now time.Time, es *v1alpha1.ElasticService, o *observed) error {
	if len(playerLists(es)) == 0 {
		return nil
	}
	for _, l := range []struct {
		from *v1alpha1.PlayerList
		to   **[]string
	}{{es.Spec.Wake.Players.AllowFrom, &o.lists.allow}, {es.Spec.Wake.Players.DenyFrom, &o.lists.deny}} {
		if l.from == nil {
			continue
		}
		lists := &corev1.ConfigMap{}
		err := r.Client.Get(ctx, types.NamespacedName{Namespace: es.Namespace, Name: l.from.ConfigMap}, lists)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read ConfigMap %s/%s: %w", es.Namespace, l.from.ConfigMap, err)
		}
		if err != nil {
			lists = nil
		}
		players, next, ob := readList(now, l.from, lists)
		switch {
		case ob == nil:
			*l.to = &players
		case o.lists.obstacle == nil:
			o.lists.obstacle = ob
		default:
			o.lists.obstacle = &obstacle{o.lists.obstacle.reason, o.lists.obstacle.message + " " + ob.message}
		}
		if !next.IsZero() && (o.lists.next.IsZero() || next.Before(o.lists.next)) {
			o.lists.next = next
		}
	}
	return nil
}

// readList reads one of the lists of a ConfigMap, which is nil where there is none.
func readList(now time.Time, from *v1alpha1.PlayerList, lists *corev1.ConfigMap) (players []string, next time.Time, ob *obstacle) {
	if lists == nil {
		return nil, next, &obstacle{v1alpha1.ReasonConfigMapNotFound, fmt.Sprintf(
			"There is no ConfigMap %s with the label %s: create it, or correct spec.wake.players.", from.ConfigMap, v1alpha1.PlayerListLabel)}
	}
	text, ok := lists.Data[from.Key]
	if !ok {
		among := ""
		if len(lists.Data) >= maxLists {
			among = fmt.Sprintf(" among its first %d", maxLists)
		}
		return nil, next, &obstacle{v1alpha1.ReasonPlayerListInvalid, fmt.Sprintf(
			"ConfigMap %s has no key %s%s: add it, or correct spec.wake.players.", lists.Name, from.Key, among)}
	}
	players, next, err := readPlayers(text, now)
	if err != nil {
		return nil, next, &obstacle{v1alpha1.ReasonPlayerListInvalid, fmt.Sprintf(
			"Key %s of ConfigMap %s isn't like Minecraft's whitelist.json or banned-players.json: %s. Correct it.", from.Key, lists.Name, err)}
	}
	return players, next, nil
}

// keepLists writes the players of the lists into the status. Those of before hold on
// while their list can't be read. Where it never could, nobody is on it.
func keepLists(es *v1alpha1.ElasticService, o observed) {
	if len(playerLists(es)) == 0 {
		es.Status.WakePlayers = nil
		return
	}
	before := es.Status.WakePlayers
	if before == nil {
		before = &v1alpha1.WakePlayersStatus{}
	}
	keep := func(from *v1alpha1.PlayerList, read *[]string, before []string) []string {
		switch {
		case from == nil:
			return nil
		case read == nil:
			return before
		}
		return *read
	}
	p := es.Spec.Wake.Players
	es.Status.WakePlayers = &v1alpha1.WakePlayersStatus{
		Allow: keep(p.AllowFrom, o.lists.allow, before.Allow), Deny: keep(p.DenyFrom, o.lists.deny, before.Deny),
	}
}

// wakePlayersKnown says whether the lists of players could be read.
func wakePlayersKnown(es *v1alpha1.ElasticService, o observed) metav1.Condition {
	const kind = v1alpha1.ConditionWakePlayersKnown
	switch {
	case len(playerLists(es)) == 0:
		return condition.True(kind, v1alpha1.ReasonNotNeeded, "The spec names no list of players.")
	case o.lists.obstacle != nil:
		return condition.False(kind, o.lists.obstacle.reason, "%s Until then those hold on that were known before.", o.lists.obstacle.message)
	}
	return condition.True(kind, v1alpha1.ReasonOK, "The lists of who may wake the service are read.")
}
