package game

import (
	"maps"
	"slices"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

// tell takes what the operator tells.
func (c *core) tell(answer reportapi.Answer, now time.Time) {
	restored := answer.Restored
	answer.Restored = nil
	if !answer.Shutdown {
		c.toldShutdown = time.Time{}
	} else if c.toldShutdown.IsZero() {
		c.toldShutdown = now
	}
	c.told = answer
	c.begin(answer.GameStarted, now)
	if answer.GameEnded != nil {
		ended := answer.GameEnded.Truncate(time.Second)
		c.words.forget(ended)
		// Its players may have been told of in the second in which it ended.
		c.words.forgetPlayers(ended.Add(time.Second))
	}
	if !c.restored {
		c.restored = true
		if restored != nil {
			c.restore(*restored, now)
		}
		c.left = nil
	}
}

// begin takes when the game's container started. What was said before the latest
// start was said by a process that is gone. The operator's replicas may be a
// moment behind each other, so an earlier start, or none, takes nothing back.
func (c *core) begin(started *time.Time, now time.Time) {
	if started == nil {
		if c.stopped.IsZero() {
			c.stopped = now
		}
		return
	}
	c.stopped = time.Time{}
	at := started.Truncate(time.Second)
	if !at.After(c.started) {
		return
	}
	if !c.started.IsZero() {
		c.restarts++
		// Nobody plays within a game's first second, but a player of the process
		// before may have come in the second in which it ended.
		c.words.forgetPlayers(at.Add(time.Second))
	}
	c.started = at
	c.words.forget(at)
}

// restore takes what the sidecar before this one reported, where the game hasn't
// said anything since. It counts as said when the game started, so that it goes
// with that process.
func (c *core) restore(g reportapi.Game, now time.Time) {
	at := c.started
	if at.IsZero() {
		at = time.Unix(0, 0)
	}
	w := &c.words
	if g.Reported && w.last.IsZero() {
		w.last = at
	}
	if g.Reported && w.reported.IsZero() {
		w.reported = at
	}
	if !w.permission.said() && g.Permission != "" {
		w.permission = say(g.Permission, at)
	}
	c.restorePhase(g, at, now)
	if g.Players != nil {
		c.restorePlayers(*g.Players, at)
	}
	room := reportapi.MaxMetadataBytes - metadataBytes(c.labels, c.annotations)
	room = restoreMetadata(c.labels, g.Labels, room)
	restoreMetadata(c.annotations, g.Annotations, room)
	maps.Copy(c.counters, g.Counters)
	for name, list := range g.Lists {
		list.Values = slices.Clone(list.Values)
		c.lists[name] = list
	}
}

func (c *core) restorePhase(g reportapi.Game, at, now time.Time) {
	w := &c.words
	p := phase{state: g.State}
	switch g.State {
	case v1alpha1.GameStarting:
		return
	case v1alpha1.GameReserved:
		p.until = g.ReservedUntil
	case v1alpha1.GameUnhealthy:
		// What it was before nobody remembers. Ready costs least if it is wrong.
		p.state = v1alpha1.GameReady
		if w.ping.IsZero() && !w.answer.said() {
			w.broken = say(brokenness{g.Message, now}, at)
		}
	case v1alpha1.GameReady, v1alpha1.GameAllocated, v1alpha1.GameShutdown:
	}
	// Without a word of the game it is Ready by itself, not because it said so.
	if g.Reported && !w.phase.said() {
		w.phase = say(p, at)
	}
}

func (c *core) restorePlayers(p v1alpha1.PlayersStatus, at time.Time) {
	w := &c.words
	if c.config.Probed && len(p.IDs) == 0 {
		if !w.answer.said() {
			w.answer = say(count{p.Current, p.Capacity}, at)
		}
		return
	}
	if !w.capacity.said() && p.Capacity != c.told.Server.Capacity {
		w.capacity = say(p.Capacity, at)
	}
	switch {
	case w.players.said():
	case len(p.IDs) > 0:
		c.join(p.IDs, at)
	case w.tracked.IsZero():
		w.players = say(p.Current, at)
	}
}

// join puts who was there before those who have come since. Both together may be
// more than a game can name for a while; nobody is dropped for that.
func (c *core) join(ids []string, at time.Time) {
	w := &c.words
	if c.anew && !w.tracked.IsZero() {
		return
	}
	var here []word[string]
	for _, id := range ids {
		if !c.left[id] && w.find(id) < 0 {
			here = append(here, say(id, at))
		}
	}
	w.roster = append(here, w.roster...)
	if w.tracked.IsZero() {
		w.tracked = at
	}
}

// restoreMetadata adds what fits to what was set since the start, and says how many
// bytes of the room are left.
func restoreMetadata(now, before map[string]string, room int) int {
	for _, key := range slices.Sorted(maps.Keys(before)) {
		size := len(key) + len(before[key])
		if _, ok := now[key]; !ok && len(now) < reportapi.MaxMetadata && size <= room {
			now[key] = before[key]
			room -= size
		}
	}
	return room
}
