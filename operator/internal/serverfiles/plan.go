package serverfiles

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"dormouse.dev/dormouse/api/conditions"
	"dormouse.dev/dormouse/api/reasons"
	"dormouse.dev/dormouse/internal/condition"
	"dormouse.dev/dormouse/operator/internal/disks"
	"dormouse.dev/dormouse/operator/internal/text"
)

// filePod is a Pod that serves a Server's files.
type filePod struct {
	name string
	uid  types.UID
	// node is where it is; empty: nowhere yet, so that it has no disk.
	node string
	// ending is set where it is about to be gone, or over; gated, where it waits at its gate; and
	// over, where it has ended.
	ending, gated, over bool
}

// has reports whether it may have the disks.
func (f filePod) has() bool { return !f.gated && !f.over }

// filePodOf is a Pod that serves a Server's files. One that a copy has end may go on for long, which a game
// doesn't wait for.
func filePodOf(pod *corev1.Pod) filePod {
	goes := !pod.DeletionTimestamp.IsZero() && ptr.Deref(pod.DeletionGracePeriodSeconds, 0) <= grace
	return filePod{name: pod.Name, uid: pod.UID, node: pod.Spec.NodeName, ending: goes || disks.Over(pod), gated: disks.Gated(pod), over: disks.Over(pod)}
}

// gamePod is the Pod of a Server's game.
type gamePod struct {
	uid  types.UID
	node string
	// unschedulable is set where the scheduler found no node for it.
	unschedulable bool
}

// ending is what must be done so that the game gets its disks.
type ending struct {
	// pods end at once.
	pods []filePod
	// sleep is set where no other may come in their place before somebody connects again: it
	// would be scheduled before the game.
	sleep bool
	// why is a sentence; empty where nothing must be done.
	why string
}

// room is what is remembered of a game that found no node: since when no files have had its disks.
type room struct {
	game  types.UID
	since time.Time
}

// roomTime is how long the scheduler has to find a node for the game once no files have its disks. It
// tries at once when a Pod goes, and then again after ten seconds at most.
const roomTime = 30 * time.Second

// after is the room that the game of a pass has, by that of the pass before.
func (r room) after(files []filePod, game *gamePod, now time.Time) room {
	switch {
	case game == nil || game.node != "" || !game.unschedulable:
		return room{}
	case r.game == game.uid || slices.ContainsFunc(files, filePod.has):
		return r
	}
	return room{game: game.uid, since: now}
}

// shut reports whether a game keeps files at their gate: it is about to have a disk for itself, or may
// find a node only without them.
func (r room) shut(game *gamePod, shared disks.Sharing, now time.Time) bool {
	switch {
	case game == nil:
		return false
	case shared == disks.SharedByNobody:
		return true
	case game.node != "" || !game.unschedulable || shared == disks.SharedByAll:
		return false
	}
	return r.game != game.uid || now.Sub(r.since) < roomTime
}

// planEnding decides what must make room for the game, which always wins. A game that has found no node
// though it had room misses something else than the disks.
func planEnding(files []filePod, game *gamePod, shared disks.Sharing, had room) ending {
	if game == nil || shared == disks.SharedByAll {
		return ending{}
	}
	var e ending
	for _, f := range files {
		switch {
		case f.ending || f.node == "":
		case game.node != "" && (game.node != f.node || shared == disks.SharedByNobody):
			e.pods = append(e.pods, f)
			e.why = "Ended Pod " + f.name + ", which served the files: the game is on node " + game.node + ", and needs the disks there."
		case game.node == "" && game.unschedulable && had.game != game.uid:
			e.pods, e.sleep = append(e.pods, f), true
			e.why = "Ended Pod " + f.name + ", which served the files: the scheduler found no node for the game while it had the disks."
		}
	}
	return e
}

// waits reports whether a Pod of the files waits for a disk that only the game's Pod may have.
func waits(files []filePod, game *gamePod, shared disks.Sharing) bool {
	if game == nil || shared != disks.SharedByNobody {
		return false
	}
	for _, f := range files {
		if !f.ending {
			return true
		}
	}
	return false
}

// served is how it is with the files of one Server.
type served struct {
	service string
	// ready is the condition; True has no message yet.
	ready metav1.Condition
}

func problem(reason, format string, args ...any) metav1.Condition {
	return condition.False(conditions.FilesServed, reason, format, args...)
}

// summary is the condition of the owner of some Servers: the first problem, or where the files are.
func summary(all []served) metav1.Condition {
	var services []string
	for _, s := range all {
		if s.ready.Status != metav1.ConditionTrue {
			return s.ready
		}
		services = append(services, s.service)
	}
	what := "Service"
	if len(services) > 1 {
		what = "the Services"
	}
	return condition.True(conditions.FilesServed, reasons.OK, "SFTP on port %d of %s %s.", servicePort, what, text.Some(services))
}
