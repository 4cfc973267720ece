package route

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// Players is how many players a Server last reported, and how many it has room for; a Capacity
// of 0 is unknown.
type Players struct{ Current, Capacity int }

// reported is a Server's Players, with its pod and its targets.
type reported struct {
	targets []Target
	// pod is the UID of the pod that the report is of.
	pod     types.UID
	players Players
}

// reportOf reads a Server's last report; false: there is none.
func reportOf(s *v1alpha1.Server) (reported, bool) {
	if s.Status.Players == nil || s.Status.Game == nil || s.Status.Game.PodUID == "" {
		return reported{}, false
	}
	return reported{
		targets: targetsOf(s), pod: types.UID(s.Status.Game.PodUID),
		players: Players{int(s.Status.Players.Current), int(s.Status.Players.Capacity)},
	}, true
}

// setPlayers takes in a Server's report; nil: the Server is gone. Routes that don't choose
// among Servers are not touched, and those that do get no new version. It is called with the
// table's lock.
func (t *Table) setPlayers(name types.NamespacedName, s *v1alpha1.Server) {
	was, had := t.players[name]
	var is reported
	has := false
	if s != nil {
		is, has = reportOf(s)
	}
	if had == has && was.pod == is.pod && was.players == is.players && slices.Equal(was.targets, is.targets) {
		return
	}
	if had && (!has || was.pod != is.pod || !slices.Equal(was.targets, is.targets)) {
		t.tellPlayers(was, nil)
	}
	if !has {
		delete(t.players, name)
		return
	}
	t.players[name] = is
	t.tellPlayers(is, &is.players)
}

// tellPlayers gives the sink a Server's players, for each route that chooses among its target's
// Servers.
func (t *Table) tellPlayers(r reported, players *Players) {
	for _, target := range r.targets {
		for _, uid := range t.targets[target] {
			if shown := t.shown[uid]; shown != nil && shown.Balance != "" {
				t.sink.Players(uid, r.pod, players)
			}
		}
	}
}

// tellAllPlayers gives the sink the players for a route that now chooses among other Servers,
// and takes those of the previous ones back.
func (t *Table) tellAllPlayers(was, is *Route) {
	before, now := chosen(was), chosen(is)
	if before == now {
		return
	}
	for _, r := range t.players {
		switch {
		case now != (Target{}) && slices.Contains(r.targets, now):
			players := r.players
			t.sink.Players(is.UID, r.pod, &players)
		case before != (Target{}) && slices.Contains(r.targets, before):
			t.sink.Players(is.UID, r.pod, nil)
		}
	}
}

// chosen is the target among whose Servers a route chooses; the zero value for none.
func chosen(r *Route) Target {
	if r == nil || r.Balance == "" {
		return Target{}
	}
	return r.Target
}
