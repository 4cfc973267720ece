package elasticservice

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/operator/internal/allocation/book"
	"dormouse.dev/dormouse/operator/internal/elasticservice/idleness"
	"dormouse.dev/dormouse/operator/internal/elasticservice/planner"
	"dormouse.dev/dormouse/operator/internal/report"
	"dormouse.dev/dormouse/operator/internal/spec"
	"dormouse.dev/dormouse/operator/internal/target"
)

// Players finds the reports that all replicas of the operator recently got about the Servers of
// an owner, such as Fleet/lobbies, by the Servers' names. An error means that they aren't
// known.
type Players interface {
	Recent(ctx context.Context, namespace, owner string) (map[string]reportapi.RecentReport, error)
}

// playerState is the memory of who plays between passes.
type playerState struct {
	// idleSince is since when nobody has played; zero while somebody does.
	idleSince time.Time
	reports   idleness.Reports
}

// observePlayers finds out from the Servers' status who plays.
func (r *Reconciler) observePlayers(ctx context.Context, now time.Time, servers []v1alpha1.Server, m *playerState, o *planner.Observed) error {
	games, err := r.games(ctx, servers)
	if err != nil {
		return err
	}
	o.Players = idleness.Players{Games: games, Busy: idleness.BusyOf(games), Reports: m.reports}
	if o.Players.Busy != "" {
		m.idleSince = time.Time{}
	} else if m.idleSince.IsZero() {
		m.idleSince = now
	}
	o.Players.IdleSince = m.idleSince
	return nil
}

// games are the games that run on Servers, including draining ones.
func (r *Reconciler) games(ctx context.Context, servers []v1alpha1.Server) ([]idleness.Game, error) {
	var games []idleness.Game
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
		if g := s.Status.Game; started == nil && idleness.Busy(s) && g != nil && g.Reported && g.PodUID == string(pod.UID) {
			started = &pod.CreationTimestamp.Time // kubelet reports it late
		}
		if started != nil {
			games = append(games, idleness.Game{Server: s.Name, PodUID: string(pod.UID), Started: *started, Busy: idleness.Busy(s) || r.busy(s)})
		}
	}
	return games, nil
}

// askPlayers asks every replica for the Servers' reports, and returns o with them. It is called
// only when nothing else keeps the service awake.
func (r *Reconciler) askPlayers(ctx context.Context, es *v1alpha1.ElasticService, o planner.Observed) planner.Observed {
	m := made(&r.stateOf(es).players)
	asked := r.Now()
	recent, err := r.Players.Recent(ctx, es.Namespace, spec.Owner(es))
	m.reports = idleness.ReportsOf(asked, o.Players.Games, recent, err)
	if m.reports.Busy != "" || len(m.reports.Silent) > 0 {
		// What happened while nobody reported anything isn't known.
		m.idleSince = r.Now()
	}
	return o.WithReports(m.reports, m.idleSince)
}

// nobodyPlays asks just before a sleep, and reports whether it may go on.
func (r *Reconciler) nobodyPlays(ctx context.Context, es *v1alpha1.ElasticService) (bool, error) {
	servers, err := report.ServersOf(ctx, r.Client, es.Namespace, spec.Owner(es))
	if err != nil {
		return false, err
	}
	games, err := r.games(ctx, servers)
	if err != nil {
		return false, err
	}
	o := r.askPlayers(ctx, es, planner.Observed{Players: idleness.Players{Games: games}})
	return o.Players.Reports.NobodyPlays() && idleness.BusyOf(games) == "", nil
}

// observeDraining finds which of the target's Servers take no new players, and which have no
// room.
func observeDraining(servers []v1alpha1.Server, o *planner.Observed) {
	o.Pods.Draining, o.Pods.Full = map[string]bool{}, map[string]bool{}
	for i := range servers {
		if full(&servers[i]) {
			o.Pods.Full[servers[i].Name] = true
		}
		if idleness.Drains(&servers[i]) {
			o.Pods.Draining[servers[i].Name] = true
		}
	}
}

// full reports whether a Server has no room for another player.
func full(s *v1alpha1.Server) bool {
	p := s.Status.Players
	return p != nil && p.Capacity > 0 && p.Current >= p.Capacity
}

// Allocations knows which targets' Servers Allocations have, or wait for.
type Allocations interface {
	// WaitSynced waits until it knows.
	WaitSynced(ctx context.Context) error
	// Services asks for a pass of each ElasticService whose target they use no more.
	Services() source.Source
	// HolderOf is who has a Server.
	HolderOf(namespace, name string, uid types.UID) book.Holder
	// UseOf is how a target is used.
	UseOf(namespace, kind, name string) book.Use
	// Close asks for a target that is about to be put to sleep, with its ElasticService's
	// resourceVersion: no Allocation gets one of its Servers any more; false: it is used.
	Close(namespace, kind, name, resourceVersion string) bool
}

// allocated is how Allocations use a service's target of Servers.
func (r *Reconciler) allocated(es *v1alpha1.ElasticService) book.Use {
	if r.Allocations == nil {
		return book.Use{}
	}
	return r.Allocations.UseOf(es.Namespace, es.Spec.ScaleTargetRef.Kind, es.Spec.ScaleTargetRef.Name)
}

// allocationChanges asks for passes of services whose targets Allocations use no more.
func (r *Reconciler) allocationChanges() source.Source {
	if r.Allocations != nil {
		return r.Allocations.Services()
	}
	return source.Func(func(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request]) error { return nil })
}

// closeAllocations has no Allocation get one of the target's Servers any more, because that is put to
// sleep, and reports whether none has one.
func (r *Reconciler) closeAllocations(live *v1alpha1.ElasticService) bool {
	return r.Allocations == nil || !target.Of(live).HasServers() ||
		r.Allocations.Close(live.Namespace, live.Spec.ScaleTargetRef.Kind, live.Spec.ScaleTargetRef.Name, live.ResourceVersion)
}

// busy reports whether an Allocation has a Server.
func (r *Reconciler) busy(s *v1alpha1.Server) bool {
	return r.Allocations != nil && r.Allocations.HolderOf(s.Namespace, s.Name, s.UID).Any()
}
