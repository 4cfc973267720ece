package game

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
)

// tell takes in the operator's answer.
func (c *core) tell(answer reportapi.Answer, now time.Time) {
	ends := c.endsByItself(now)
	restored, memory := answer.Restored, answer.RestoredMemory
	answer.Restored, answer.RestoredMemory = nil, nil
	if !answer.Shutdown {
		c.shutdownSince = time.Time{}
	} else if c.shutdownSince.IsZero() {
		c.shutdownSince = now
	}
	if answer.Look != c.lastAnswer.Look {
		c.lookSince = now
	}
	c.lastAnswer = answer
	if answer.GameStarted != nil || answer.GameEnded != nil || !c.config.AfterGame || !c.started.IsZero() {
		c.begin(answer.GameStarted, now)
	} // else kubelet hasn't told the operator yet that the game was started, and it was
	if answer.GameEnded != nil {
		ended := answer.GameEnded.Truncate(time.Second)
		c.words.forget(ended)
		// Its players may have been reported within the second in which it ended.
		c.words.forgetPlayers(ended.Add(time.Second))
	}
	if ends {
		c.outlive(now)
	}
	if !c.restored {
		c.restored = true
		// What the game has asked for already it may have asked for since an order.
		c.ordered = answer.Shutdown && !endedByItself(restored, memory) || endedByOrder(restored, memory)
		if restored != nil {
			c.restore(*restored, memory, now)
		}
		c.readyIfWell()
		c.left = nil
	}
}

// begin takes in when the game's container started. Everything reported before the latest start
// came from a process that is gone. The operator's replicas may lag behind each other, so an
// earlier start, or none, undoes nothing.
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
		// Nobody plays within a game's first second, but a player of the previous process may
		// have joined in the second in which that ended, and its own end may have come then.
		ends := c.phase(now).state == v1alpha1.GameShutdown
		c.words.forgetPlayers(at.Add(time.Second))
		if ends {
			c.words.phase.forget(at.Add(time.Second))
		}
	}
	c.started = at
	c.words.forget(at)
}

// restore takes in what the sidecar before this one reported, where the game hasn't reported
// anything since. It counts as reported when the game started, so that it ends with that
// process; what belongs to the Server stays, and so does that its game ends by itself. The memory is nil
// where the sidecar before this one or the operator is of an earlier version.
func (c *core) restore(g reportapi.Game, memory *reportapi.Memory, now time.Time) {
	if memory == nil {
		memory = &reportapi.Memory{}
	}
	if at, ok := c.saidAt(memory.Started); ok {
		c.restoreWords(g, memory, at, now)
	} else if endedByItself(&g, memory) {
		c.outlive(now)
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

// endedByItself reports whether the end of a game had come that asked for it without an order.
func endedByItself(g *reportapi.Game, memory *reportapi.Memory) bool {
	return g != nil && g.State == v1alpha1.GameShutdown && memory != nil && memory.Leaving
}

// endedByOrder reports whether the end of a game had come because of an order, which may be taken back by now.
func endedByOrder(g *reportapi.Game, memory *reportapi.Memory) bool {
	return g != nil && g.State == v1alpha1.GameShutdown && memory != nil && !memory.Leaving
}

// saidAt is when what is restored counts as said, by a process that was started then, or false where that
// process is gone; nil: it isn't known which one it was.
func (c *core) saidAt(started *time.Time) (at time.Time, ok bool) {
	switch {
	case started == nil && c.started.IsZero():
		return time.Unix(0, 0), true
	case started == nil:
		return c.started, true
	}
	at = started.Truncate(time.Second)
	ended := c.lastAnswer.GameEnded
	if at.Before(c.started) || ended != nil && at.Before(ended.Truncate(time.Second)) {
		return at, false
	}
	if !c.started.IsZero() {
		c.started = at // this replica of the operator lags behind
	}
	return at, true
}

// restoreWords takes in what the game itself said.
func (c *core) restoreWords(g reportapi.Game, memory *reportapi.Memory, at, now time.Time) {
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
	// An operator of an earlier version restores of that only the end, with the phase that the game said. Who asks for
	// its own end has no such phase.
	leaving := memory.Leaving || g.State == v1alpha1.GameShutdown && memory.Phase != ""
	if leaving && !w.leaving.said() {
		w.leaving = say(true, at)
	}
	c.restorePhase(g, memory.Phase, at, now)
	if g.Players != nil {
		c.restorePlayers(g, memory.CountsPlayers, leaving, at)
	}
}

// restorePhase takes in the game's state; before is what it said of that, if it is Unhealthy or ends because
// nobody plays.
func (c *core) restorePhase(g reportapi.Game, before v1alpha1.GameState, at, now time.Time) {
	w := &c.words
	p := phase{state: g.State}
	switch g.State {
	case v1alpha1.GameStarting:
		return
	case v1alpha1.GameReserved:
		p.until = g.ReservedUntil
	case v1alpha1.GameUnhealthy:
		// Where the phase before is lost, Ready does the least harm if it is wrong.
		p = phase{state: cmp.Or(before, v1alpha1.GameReady), until: g.ReservedUntil}
		if g.Message == failedMessage {
			if w.well.IsZero() && !w.failed.said() {
				w.failed = say(brokenness{g.Message, now}, at)
			}
		} else if w.ping.IsZero() && w.well.IsZero() && !w.answer.said() {
			w.broken = say(brokenness{g.Message, now}, at)
		}
	case v1alpha1.GameShutdown:
		if before != "" {
			p = phase{state: before, until: g.ReservedUntil}
		}
	case v1alpha1.GameReady, v1alpha1.GameAllocated:
	}
	// If the game reported nothing it is Ready by default, not by its own report.
	if g.Reported && !w.phase.said() && p.state != v1alpha1.GameStarting {
		w.phase = say(p, at)
	}
}

// restorePlayers takes in how many play. A game that is probed counts where it said so itself, and where
// it names them. Leaving is set where it was to end once nobody plays.
func (c *core) restorePlayers(g reportapi.Game, counts, leaving bool, at time.Time) {
	w := &c.words
	probed := c.config.Probed
	counts = counts || len(g.Players.IDs) > 0
	if !counts && c.uncounted(g, leaving) {
		return
	}
	// A probed game that counts may not have answered yet, unless it is Ready by that.
	byProbe := c.config.Readiness != v1alpha1.ServerReadinessSDK && g.State == v1alpha1.GameReady
	if probed && (!counts || byProbe) && !w.answer.said() {
		w.answer = say(count{g.Players.Current, g.Players.Capacity}, at)
		w.stale = g.State == v1alpha1.GameUnhealthy
	}
	if probed && !counts {
		return
	}
	if !w.capacity.said() && g.Players.Capacity != c.lastAnswer.Server.Capacity {
		w.capacity = say(g.Players.Capacity, at)
	}
	switch {
	case w.players.said():
	case len(g.Players.IDs) > 0:
		c.join(g.Players.IDs, at)
	case w.tracked.IsZero():
		w.players = say(g.Players.Current, at)
	}
}

// uncounted reports whether nothing has said that nobody plays. A Server whose spec has a capacity shows
// that nevertheless, and a probed game that hasn't answered yet may have reported something else. One that was to
// end once nobody plays, and is in use, has had no answer: by that it would have ended.
func (c *core) uncounted(g reportapi.Game, leaving bool) bool {
	booting := c.config.Probed && g.State == v1alpha1.GameStarting
	inUse := g.State == v1alpha1.GameAllocated || g.State == v1alpha1.GameReserved
	return g.Players.Current == 0 && (!g.Reported || booting || leaving && (inUse || !c.config.Probed))
}

// join puts earlier players before those who have joined since. For a while both together may
// exceed what a game can name; nobody is dropped for that.
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

// restoreMetadata adds as much as fits to what was set since the start, and returns how many
// bytes are left of the room. The operator would refuse each report with a value that is too long.
func restoreMetadata(now, before map[string]string, room int) int {
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if len(before[key]) > reportapi.MaxAnnotationBytes {
			continue
		}
		size := len(key) + len(before[key])
		if _, ok := now[key]; !ok && len(now) < reportapi.MaxMetadata && size <= room {
			now[key] = before[key]
			room -= size
		}
	}
	return room
}
