package idleness

import (
	"slices"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/gamepod"
	"dormouse.dev/dormouse/internal/reportapi"
)

// Game is a Server in which a game runs.
type Game struct {
	Server, PodUID string
	Started        time.Time
	// Busy reports whether by the Server's status somebody plays, or the game may not be
	// deleted. Each replica that gets such a report writes it at once.
	Busy bool
}

// Players are the Servers' players, as far as they are known.
type Players struct {
	Games []Game
	// Busy is the name of a Server on which somebody plays by its status; empty
	// when there is none.
	Busy string
	// IdleSince is since when nobody has played, as far as this process knows.
	IdleSince time.Time
	// Reports are the replicas' answers when they were last asked.
	Reports Reports
}

// Reports are the answers of all replicas of the operator together.
type Reports struct {
	// Asked is when they were asked; zero when they weren't.
	Asked time.Time
	// Err is why the reports aren't known.
	Err error
	// Busy is a Server on which somebody plays.
	Busy string
	// Silent are Servers that should have reported and didn't. Young are those whose game has
	// only just been started.
	Silent, young []string
}

// NobodyPlays reports whether every Server reported that nobody plays.
func (p Reports) NobodyPlays() bool {
	return !p.Asked.IsZero() && p.Err == nil && p.Busy == "" && len(p.Silent) == 0 && len(p.young) == 0
}

// ReportsOf combines the reports of some games.
func ReportsOf(asked time.Time, games []Game, recent map[string]reportapi.RecentReport, err error) Reports {
	p := Reports{Asked: asked, Err: err}
	if err != nil {
		return p
	}
	for _, g := range games {
		said, ok := recent[g.Server]
		switch {
		case ok && said.PodUID == g.PodUID && said.Busy:
			p.Busy = g.Server
		case ok && said.PodUID == g.PodUID:
		case asked.Sub(g.Started) < reportapi.FreshFor:
			p.young = append(p.young, g.Server)
		default:
			p.Silent = append(p.Silent, g.Server)
		}
	}
	slices.Sort(p.Silent)
	slices.Sort(p.young)
	return p
}

// BusyOf is the name of a Server on which somebody plays by its status; empty when there is
// none.
func BusyOf(games []Game) string {
	for _, g := range games {
		if g.Busy {
			return g.Server
		}
	}
	return ""
}

// Busy reports whether by a Server's status somebody plays, or its game may not be deleted.
func Busy(s *v1alpha1.Server) bool {
	return !gamepod.DeletionAllowed(s) || s.Status.Players != nil && s.Status.Players.Current > 0
}

// Drains reports whether a Server takes no new players.
func Drains(s *v1alpha1.Server) bool {
	return s.Spec.Drain || !s.DeletionTimestamp.IsZero() || !s.Spec.Runs()
}
