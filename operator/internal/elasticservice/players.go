package elasticservice

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/operator/internal/report"
)

// Players tells what all replicas of the operator were told lately of the Servers
// of an owner, such as Fleet/lobbies, by the Servers' names. An error means that
// this isn't known.
type Players interface {
	Recent(ctx context.Context, namespace, owner string) (map[string]reportapi.RecentReport, error)
}

// playerMemory is what is remembered of who plays between passes.
type playerMemory struct {
	// idleSince is since when nobody has played; zero while somebody does.
	idleSince time.Time
	reports   playerReports
}

// game is a Server in which a game runs.
type game struct {
	server, podUID string
	started        time.Time
	// busy says that by the Server's status somebody plays, or that the game may
	// not be deleted. Whichever replica is told so writes it at once.
	busy bool
}

// observePlayers sees by the Servers' status who plays.
func (r *Reconciler) observePlayers(ctx context.Context, now time.Time, es *v1alpha1.ElasticService, o *observed) error {
	m := &r.memoryOf(es).players
	if !hasPlayers(es) || !isAwake(es.Status.Phase) || !es.DeletionTimestamp.IsZero() {
		*m = playerMemory{}
		return nil
	}
	games, err := r.games(ctx, es)
	if err != nil {
		return err
	}
	o.players = observedPlayers{games: games, busy: busyOf(games), reports: m.reports}
	if o.players.busy != "" {
		m.idleSince = time.Time{}
	} else if m.idleSince.IsZero() {
		m.idleSince = now
	}
	o.players.idleSince = m.idleSince
	return nil
}

// games are those that run on the target's Servers, the draining ones too.
func (r *Reconciler) games(ctx context.Context, es *v1alpha1.ElasticService) ([]game, error) {
	servers, err := report.ServersOf(ctx, r.Client, es.Namespace, owner(es))
	if err != nil {
		return nil, err
	}
	var games []game
	for i := range servers {
		s, pod := &servers[i], &corev1.Pod{}
		err := r.Client.Get(ctx, types.NamespacedName{Namespace: s.Namespace, Name: s.Name}, pod, client.UnsafeDisableDeepCopy)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read the Pod of Server %s/%s: %w", s.Namespace, s.Name, err)
		}
		started := report.GameStarted(s, pod)
		if g := s.Status.Game; started == nil && busy(s) && g != nil && g.PodUID == string(pod.UID) {
			started = &pod.CreationTimestamp.Time // kubelet's word is late
		}
		if started != nil {
			games = append(games, game{server: s.Name, podUID: string(pod.UID), started: *started, busy: busy(s)})
		}
	}
	return games, nil
}

// askPlayers looks for the reports of the Servers with every replica. It is for
// the moment in which nothing else keeps the service awake.
func (r *Reconciler) askPlayers(ctx context.Context, es *v1alpha1.ElasticService, o *observed) {
	m := &r.memoryOf(es).players
	asked := r.Now()
	recent, err := r.Players.Recent(ctx, es.Namespace, owner(es))
	m.reports = judgeReports(asked, o.players.games, recent, err)
	if m.reports.busy != "" || len(m.reports.silent) > 0 {
		// What was while nobody said anything isn't known.
		m.idleSince = r.Now()
	}
	o.players.reports, o.players.idleSince = m.reports, m.idleSince
}

// judgeReports says what the reports of some games say together.
func judgeReports(asked time.Time, games []game, recent map[string]reportapi.RecentReport, err error) playerReports {
	p := playerReports{asked: asked, err: err}
	if err != nil {
		return p
	}
	for _, g := range games {
		said, ok := recent[g.server]
		switch {
		case ok && said.PodUID == g.podUID && said.Busy:
			p.busy = g.server
		case ok && said.PodUID == g.podUID:
		case asked.Sub(g.started) < reportapi.FreshFor:
			p.young = append(p.young, g.server)
		default:
			p.silent = append(p.silent, g.server)
		}
	}
	slices.Sort(p.silent)
	slices.Sort(p.young)
	return p
}

// nobodyPlays asks now, just before a sleep, and says whether it may go on.
func (r *Reconciler) nobodyPlays(ctx context.Context, es *v1alpha1.ElasticService) (bool, error) {
	games, err := r.games(ctx, es)
	if err != nil {
		return false, err
	}
	o := observed{players: observedPlayers{games: games}}
	r.askPlayers(ctx, es, &o)
	return o.players.reports.quiet() && busyOf(games) == "", nil
}

func busyOf(games []game) string {
	for _, g := range games {
		if g.busy {
			return g.server
		}
	}
	return ""
}

// busy says that by a Server's status somebody plays, or that its game may not be
// deleted.
func busy(s *v1alpha1.Server) bool {
	return !s.Status.DeletionAllowed || s.Status.Players != nil && s.Status.Players.Current > 0
}

// observeDraining sees which of the target's Servers take nobody any more, and which
// have no room.
func (r *Reconciler) observeDraining(ctx context.Context, es *v1alpha1.ElasticService, o *observed) error {
	if !refOf(es).HasServers() {
		return nil
	}
	servers, err := report.ServersOf(ctx, r.Client, es.Namespace, owner(es))
	if err != nil {
		return err
	}
	o.draining, o.full = map[string]bool{}, map[string]bool{}
	for i := range servers {
		if full(&servers[i]) {
			o.full[servers[i].Name] = true
		}
		if drains(&servers[i]) {
			o.draining[servers[i].Name] = true
		}
	}
	return nil
}

// drains says that a Server takes nobody any more.
func drains(s *v1alpha1.Server) bool { return s.Spec.Drain || !s.DeletionTimestamp.IsZero() }

// full says that a Server has no room for another player.
func full(s *v1alpha1.Server) bool {
	p := s.Status.Players
	return p != nil && p.Capacity > 0 && p.Current >= p.Capacity
}

// owner names such a target as package report does.
func owner(es *v1alpha1.ElasticService) string {
	return es.Spec.ScaleTargetRef.Kind + "/" + es.Spec.ScaleTargetRef.Name
}

func hasPlayers(es *v1alpha1.ElasticService) bool {
	return es.Spec.Idle != nil && es.Spec.Idle.Players && refOf(es).HasServers()
}

// byServer finds the ElasticServices whose target a Server is of.
func (r *Reconciler) byServer(ctx context.Context, o client.Object) []reconcile.Request {
	var requests []reconcile.Request
	for _, owner := range report.Owners(o) {
		requests = append(requests, r.find(ctx, client.InNamespace(o.GetNamespace()), client.MatchingFields{indexTarget: owner})...)
	}
	return requests
}

// serverChanged lets through what makes a Server busy or not, or drain.
func serverChanged() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, ok1 := e.ObjectOld.(*v1alpha1.Server)
			after, ok2 := e.ObjectNew.(*v1alpha1.Server)
			return ok1 && ok2 && (busy(before) != busy(after) || drains(before) != drains(after))
		},
	}
}

// some names a few of many.
func some(names []string) string {
	const most = 5
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
