// Package playerlist reads the lists of players who may wake a service, or may not, from
// ConfigMaps. The cache keeps only digests of a ConfigMap's entries, so that no names of
// players stay in memory. The package reads only ConfigMaps that have wellknown.PlayerListLabel,
// and writes nothing.
package playerlist

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/operator/internal/index"
	"dormouse.dev/dormouse/operator/internal/obstacle"
)

// Lists are what a pass read of the spec's lists of players.
type Lists struct {
	// Allow and Deny are the listed players; nil where there is no list, or it can't be read.
	Allow, Deny *[]string
	// Next is when the next ban ends; zero when none does.
	Next time.Time
	// Obstacle is why a list can't be read.
	Obstacle *obstacle.Obstacle
}

// Observe reads the lists of players in a spec.
func Observe(ctx context.Context, cached client.Reader, now time.Time, es *v1alpha1.ElasticService) (o Lists, err error) {
	if len(index.PlayerLists(es)) == 0 {
		return o, nil
	}
	for _, l := range []struct {
		from *v1alpha1.PlayerList
		to   **[]string
	}{{es.Spec.Wake.Players.AllowFrom, &o.Allow}, {es.Spec.Wake.Players.DenyFrom, &o.Deny}} {
		if l.from == nil {
			continue
		}
		lists := &corev1.ConfigMap{}
		err := cached.Get(ctx, types.NamespacedName{Namespace: es.Namespace, Name: l.from.ConfigMap}, lists)
		if client.IgnoreNotFound(err) != nil {
			return o, fmt.Errorf("read ConfigMap %s/%s: %w", es.Namespace, l.from.ConfigMap, err)
		}
		if err != nil {
			lists = nil
		}
		players, next, ob := readList(now, l.from, lists)
		switch {
		case ob == nil:
			*l.to = &players
		case o.Obstacle == nil:
			o.Obstacle = ob
		default:
			o.Obstacle = obstacle.New(o.Obstacle.Reason, "%s", o.Obstacle.Message+" "+ob.Message)
		}
		if !next.IsZero() && (o.Next.IsZero() || next.Before(o.Next)) {
			o.Next = next
		}
	}
	return o, nil
}

// readList reads one of a ConfigMap's lists; the ConfigMap is nil where there is none.
func readList(now time.Time, from *v1alpha1.PlayerList, lists *corev1.ConfigMap) (players []string, next time.Time, ob *obstacle.Obstacle) {
	if lists == nil {
		return nil, next, obstacle.New(reasons.ConfigMapNotFound,
			"There is no ConfigMap %s with the label %s: create it, or correct spec.wake.players.", from.ConfigMap, wellknown.PlayerListLabel)
	}
	list, ok := lists.Data[from.Key]
	if !ok {
		among := ""
		if len(lists.Data) >= maxLists {
			among = fmt.Sprintf(" among its first %d", maxLists)
		}
		return nil, next, obstacle.New(reasons.PlayerListInvalid,
			"ConfigMap %s has no key %s%s: add it, or correct spec.wake.players.", lists.Name, from.Key, among)
	}
	players, next, err := readPlayers(list, now)
	if err != nil {
		return nil, next, obstacle.New(reasons.PlayerListInvalid,
			"Key %s of ConfigMap %s isn't like Minecraft's whitelist.json or banned-players.json: %s. Correct it.", from.Key, lists.Name, err)
	}
	return players, next, nil
}
