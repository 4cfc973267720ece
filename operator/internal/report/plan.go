package report

import (
	"maps"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/gamepod"
	"dormouse.dev/dormouse/internal/reportapi"
)

const (
	// pace is the shortest time between two writes of a Server that nobody waits for.
	pace = time.Second
	// startTime is how long reports during a game's start may wait for the report that it has
	// started, which is written anyway.
	startTime = 5 * time.Second
	// firstWords is how long it may wait to be written that a game takes players which has said
	// nothing of itself yet: one that speaks does so as soon as its sidecar listens.
	firstWords = 250 * time.Millisecond
	// endTime is how long the sidecar's word that it knows of the end may wait, where the Server
	// may go: the controller asks it a last time, which leaves the word to sidecars that aren't
	// asked or don't reply.
	endTime = 15 * time.Second
)

// Reasons of a write, for metrics.
const (
	reasonState    = "state"
	reasonDenied   = "deletion_denied"
	reasonShutdown = "shutdown_seen"
	reasonPlayers  = "players"
	reasonOther    = "other"
	reasonMetadata = "metadata"
	reasonOrder    = "order"
)

// said is a report that was accepted.
type said struct {
	podName, podUID string
	report          *reportapi.Report
	// at is when it came.
	at time.Time
	// since is when its game's state was first reported here.
	since time.Time
	// base is the instance in the Server's status when the report came. A status from any
	// instance other than that and the report's own is newer than the report.
	base string
	// from is the sequence number of the first of the instance's reports from which on all came
	// here without a gap. The one before went to another replica.
	from int64
	// leavingFrom is likewise that of the first from which on all said the same of whether the game is leaving.
	leavingFrom int64
	// deniedSince is the sequence number of the instance's first report from which on all
	// denied the deletion, wherever they went; 0 where that isn't known.
	deniedSince int64
}

// busy reports whether somebody plays, or the game may not be deleted.
func (s *said) busy() bool {
	p := s.report.Game.Players
	return !s.report.DeletionAllowed || p != nil && p.Current > 0
}

// leaving reports whether the game is to end once nobody plays.
func (s *said) leaving() bool {
	m := s.report.Memory
	return m != nil && m.Leaving
}

// supersededBy reports whether a Server's status is from a newer report than this one.
func (s *said) supersededBy(status *v1alpha1.ServerStatus) bool {
	g := status.Game
	switch {
	case g == nil || g.Instance == "" || g.PodUID != s.podUID:
		return false
	case g.Instance == s.report.Instance:
		return g.Sequence > sequence(s.report)
	default:
		return g.Instance != s.base
	}
}

// unsettled reports whether another replica may have a report between the status and this one,
// which it would still write. Where all of those deny the deletion, that does no harm: or
// each busy Server would cost a write when its replica of the operator is restarted.
func (s *said) unsettled(stored *v1alpha1.GameStatus) bool {
	from := s.from
	if s.deniedSince > 0 {
		from = min(from, s.deniedSince)
	}
	return stored.Instance != s.report.Instance || stored.Sequence < from-1
}

// sequence is the report's, which parse has checked.
func sequence(r *reportapi.Report) int64 { return int64(r.Sequence) } //nolint:gosec // parse refuses larger ones

// change is what a report changes on a Server.
type change struct {
	// status is the reports' part of the wanted status; nil when it needs no change.
	status *v1alpha1.ServerStatus
	// labels and annotations are to be set, in addition to the existing ones.
	labels, annotations map[string]string
	// reason is the first difference.
	reason string
	// urgent reports whether it is to be written at once.
	urgent bool
	// patience is for how long this may wait where the game starts, since a report to come will
	// write it, too.
	patience time.Duration
}

// byDefault is the change as it counts where a game takes players that says nothing of itself.
// That may wait for the game's first words, and while the Pod isn't ready for that: the Server
// takes no players before. For a GameType's Server a resolver may hold players, which it connects
// by that word.
func (c change) byDefault(server *v1alpha1.Server, podReady bool) change {
	if server.Labels[wellknown.GameTypeLabel] != "" || !server.DeletionTimestamp.IsZero() {
		return c
	}
	if c.reason != reasonState || c.status.Game.Reported || c.status.Game.State != v1alpha1.GameReady || !c.status.DeletionAllowed ||
		c.status.Players != nil && c.status.Players.Current > 0 {
		return c
	}
	c.urgent, c.patience = false, startTime
	if podReady {
		c.patience = firstWords
	}
	return c
}

// none reports whether there is nothing to write.
func (c change) none() bool {
	return c.status == nil && len(c.labels) == 0 && len(c.annotations) == 0
}

// own is the part of a status that reports are written to.
func own(s *v1alpha1.ServerStatus) v1alpha1.ServerStatus {
	return v1alpha1.ServerStatus{
		Players: s.Players, DeletionAllowed: s.DeletionAllowed, Game: s.Game, Counters: s.Counters, Lists: s.Lists,
	}
}

// compare finds what a report changes on a Server. A Server whose status has nothing about this
// Pod's game counts as starting.
func compare(server *v1alpha1.Server, s *said) change {
	before, after := own(&server.Status), wantedStatus(server, s)
	stored := v1alpha1.GameStatus{State: v1alpha1.GameStarting, PodUID: s.podUID}
	if g := before.Game; g != nil && g.PodUID == s.podUID {
		stored = *g
	}
	c := change{
		labels:      missing(server.Labels, s.report.Game.Labels),
		annotations: missing(server.Annotations, s.report.Game.Annotations),
	}
	game := *after.Game
	game.Since, game.Instance, game.Sequence = stored.Since, stored.Instance, stored.Sequence
	if stored.Started == nil {
		// Nothing of a memory is stored, and kinds of an earlier version never store it: it is written with
		// the next change.
		game.Started, game.Phase, game.CountsPlayers = nil, stored.Phase, stored.CountsPlayers
	}
	if stored.Instance == s.report.Instance && stored.Sequence >= s.leavingFrom {
		// It has been written: kinds of an earlier version don't store it, and it isn't written again.
		game.Leaving = stored.Leaving
	}
	players := !equality.Semantic.DeepEqual(before.Players, after.Players)
	other := before.DeletionAllowed != after.DeletionAllowed || !equality.Semantic.DeepEqual(stored, game) ||
		!equality.Semantic.DeepEqual(before.Counters, after.Counters) || !equality.Semantic.DeepEqual(before.Lists, after.Lists)
	nobody := after.Players == nil || after.Players.Current == 0
	switch {
	case gamepod.DeletionAllowed(server) && !after.DeletionAllowed:
		c.reason, c.urgent = reasonDenied, true
	case stored.State != game.State:
		c.reason, c.urgent = reasonState, true
	case !stored.ShutdownSeen && game.ShutdownSeen:
		c.reason = reasonShutdown
		if before.DeletionAllowed && after.DeletionAllowed && nobody && !players {
			c.patience = endTime
		} else {
			c.urgent = true
		}
	case players:
		c.reason = reasonPlayers
	case other:
		c.reason = reasonOther
	}
	// An unchanged status isn't enough to keep players safe: it must name this report, or an
	// older one that allows the deletion may replace it.
	guard := s.from > 0 && s.busy() && s.unsettled(&stored)
	if guard && c.reason == "" {
		c.reason = reasonOrder
	}
	if c.reason != "" {
		c.status = &after
	} else if !c.none() {
		c.reason = reasonMetadata
	}
	if !c.urgent && game.State == v1alpha1.GameStarting && nobody && server.DeletionTimestamp.IsZero() && !server.Spec.Drain {
		c.patience = startTime
	}
	c.urgent = c.urgent || guard && c.patience == 0
	return c
}

// wantedStatus is the reports' part of the status according to this report.
func wantedStatus(server *v1alpha1.Server, s *said) v1alpha1.ServerStatus {
	g := &s.report.Game
	game := &v1alpha1.GameStatus{
		State:        g.State,
		Since:        &metav1.Time{Time: s.since.Truncate(time.Second)},
		PodUID:       s.podUID,
		Message:      g.Message,
		Reported:     g.Reported,
		Permission:   g.Permission,
		ShutdownSeen: s.report.ShutdownSeen,
		Instance:     s.report.Instance,
		Sequence:     sequence(s.report),
	}
	remember(game, s.report.Memory)
	if g.ReservedUntil != nil {
		game.ReservedUntil = &metav1.Time{Time: g.ReservedUntil.UTC().Truncate(time.Second)}
	}
	if stored := server.Status.Game; stored != nil && stored.PodUID == s.podUID && stored.State == g.State && stored.Since != nil {
		game.Since = stored.Since
	}
	return v1alpha1.ServerStatus{
		Players: playersOf(server, g), DeletionAllowed: s.report.DeletionAllowed, Game: game, Counters: g.Counters, Lists: g.Lists,
	}
}

// playersOf are a game's players, with the capacity of the spec where the game reports none.
func playersOf(server *v1alpha1.Server, g *reportapi.Game) *v1alpha1.PlayersStatus {
	spec := server.Spec.Players
	if spec == nil || g.Players != nil && g.Players.Capacity > 0 {
		return g.Players
	}
	p := v1alpha1.PlayersStatus{}
	if g.Players != nil {
		p = *g.Players
	}
	p.Capacity = spec.Capacity
	return &p
}

// missing are the entries of want that have lacks, or has with another value.
func missing(have, want map[string]string) map[string]string {
	var list map[string]string
	for key, value := range want {
		if v, ok := have[key]; !ok || v != value {
			if list == nil {
				list = map[string]string{}
			}
			list[key] = value
		}
	}
	return list
}

// due is after how long a change that was first seen at seen is to be written, if the Server
// was last written at written.
func due(now, seen, written time.Time, c change) time.Duration {
	at := written.Add(pace)
	if waits := seen.Add(c.patience); c.patience > 0 && waits.After(at) {
		at = waits
	}
	return max(at.Sub(now), 0)
}

// restored is what a sidecar that has just started gets back: the last report of its Pod, if
// this replica has it and the status is from no newer one, or else what the status has. It is
// nil where nothing is known of the Pod.
func restored(server *v1alpha1.Server, podUID string, last *said) (*reportapi.Game, *reportapi.Memory) {
	if last != nil && last.podUID == podUID && !last.supersededBy(&server.Status) {
		game := last.report.Game
		return &game, last.report.Memory
	}
	s := &server.Status
	if s.Game == nil || s.Game.PodUID != podUID {
		return nil, nil
	}
	game := &reportapi.Game{
		State:         s.Game.State,
		Message:       s.Game.Message,
		Reported:      s.Game.Reported,
		Permission:    s.Game.Permission,
		ReservedUntil: timeOf(s.Game.ReservedUntil),
		Players:       s.Players,
		Counters:      s.Counters,
		Lists:         s.Lists,
		Labels:        setByGame(server.Labels),
		Annotations:   setByGame(server.Annotations),
	}
	if p := s.Players; p != nil && !s.Game.Reported && p.Current == 0 {
		// Nothing has reported that nobody plays: the status has the spec's capacity alone.
		game.Players = nil
	}
	if game.Counters == nil {
		game.Counters = server.Spec.Counters
	}
	if game.Lists == nil {
		game.Lists = server.Spec.Lists
	}
	return game, recall(s.Game)
}

// setByGame is what a game may have set through the SDK. Somebody else may have set a value that is too long
// to be reported.
func setByGame(metadata map[string]string) map[string]string {
	kept := maps.Clone(metadata)
	maps.DeleteFunc(kept, func(key, value string) bool {
		return !strings.HasPrefix(key, wellknown.SDKMetadataPrefix) || len(value) > reportapi.MaxAnnotationBytes
	})
	if len(kept) == 0 {
		return nil
	}
	return kept
}
