package elasticservice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	// players are those on the lists; nil where there are none, or one can't be read.
	players *v1alpha1.WakePlayersStatus
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
	p, out := es.Spec.Wake.Players, &v1alpha1.WakePlayersStatus{}
	for _, l := range []struct {
		from *v1alpha1.PlayerList
		to   *[]string
	}{{p.AllowFrom, &out.Allow}, {p.DenyFrom, &out.Deny}} {
		if l.from == nil {
			continue
		}
		list := &corev1.ConfigMap{}
		err := r.Client.Get(ctx, types.NamespacedName{Namespace: es.Namespace, Name: l.from.ConfigMap}, list)
		if apierrors.IsNotFound(err) {
			o.lists.obstacle = &obstacle{v1alpha1.ReasonConfigMapNotFound, fmt.Sprintf(
				"There is no ConfigMap %s with the label %s: create it, or correct spec.wake.players.", l.from.ConfigMap, v1alpha1.PlayerListLabel)}
			return nil
		}
		if err != nil {
			return fmt.Errorf("read ConfigMap %s/%s: %w", es.Namespace, l.from.ConfigMap, err)
		}
		text, ok := list.Data[l.from.Key]
		if !ok {
			o.lists.obstacle = &obstacle{v1alpha1.ReasonPlayerListInvalid, fmt.Sprintf(
				"ConfigMap %s has no key %s: add it, or correct spec.wake.players.", list.Name, l.from.Key)}
			return nil
		}
		players, next, err := readPlayers(text, now)
		if err != nil {
			o.lists.obstacle = &obstacle{v1alpha1.ReasonPlayerListInvalid, fmt.Sprintf(
				"Key %s of ConfigMap %s isn't like Minecraft's whitelist.json or banned-players.json: %s. Correct it.", l.from.Key, list.Name, err)}
			return nil
		}
		*l.to = players
		if !next.IsZero() && (o.lists.next.IsZero() || next.Before(o.lists.next)) {
			o.lists.next = next
		}
	}
	o.lists.players = out
	return nil
}

// listedPlayer is an entry of Minecraft's whitelist.json or banned-players.json.
type listedPlayer struct {
	UUID    string `json:"uuid"`
	Name    string `json:"name"`
	Expires string `json:"expires"`
}

// How the game writes when a ban ends.
const (
	expiryFormat = "2006-01-02 15:04:05 -0700"
	neverEnds    = "forever"
)

// readPlayers reads a list into digests, without bans that have ended, and says when the
// next one ends.
func readPlayers(text string, now time.Time) (digests []string, next time.Time, err error) {
	var listed []listedPlayer
	if err := json.Unmarshal([]byte(text), &listed); err != nil {
		return nil, next, errors.New("it is no JSON of a list of objects")
	}
	digests = []string{}
	for i, p := range listed {
		if p.UUID == "" && p.Name == "" {
			return nil, next, fmt.Errorf("entry %d has neither a name nor a uuid", i)
		}
		if p.Expires != "" && p.Expires != neverEnds {
			ends, err := time.Parse(expiryFormat, p.Expires)
			if err != nil {
				return nil, next, fmt.Errorf("entry %d expires at %q, which is no time such as 2026-01-31 18:00:00 +0000", i, p.Expires)
			}
			if !ends.After(now) {
				continue
			}
			if next.IsZero() || ends.Before(next) {
				next = ends
			}
		}
		for _, who := range []string{p.UUID, p.Name} {
			if who != "" {
				digests = append(digests, v1alpha1.PlayerDigest(who))
			}
		}
		if len(digests) > v1alpha1.MaxListedPlayers {
			return nil, next, fmt.Errorf("it has more than %d names and uuids", v1alpha1.MaxListedPlayers)
		}
	}
	slices.Sort(digests)
	return slices.Compact(digests), next, nil
}

// keepLists writes the players of the lists into the status. Those of before hold on
// while a list can't be read.
func keepLists(es *v1alpha1.ElasticService, o observed) {
	switch {
	case len(playerLists(es)) == 0:
		es.Status.WakePlayers = nil
	case o.lists.obstacle == nil:
		es.Status.WakePlayers = o.lists.players
	case es.Status.WakePlayers == nil:
		// Nothing is known of them: whoever must be on a list isn't.
		es.Status.WakePlayers = &v1alpha1.WakePlayersStatus{}
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
