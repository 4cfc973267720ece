package game

import (
	"slices"
	"time"

	"dormouse.dev/dormouse/internal/reportapi"
)

// MaxPlayers bounds how many may play on one server.
const MaxPlayers = 1_000_000

// SetPlayers sets how many play, for a game that only counts its players; with a capacity also
// how many may. Before the operator has answered, only a capacity that the game itself has set since
// is checked: it may have set another before.
func (g *Game) SetPlayers(current int64, capacity *int64) error {
	return g.do(report, func(c *core, now time.Time) error {
		most := int64(c.capacity())
		if capacity != nil {
			if *capacity < 0 || *capacity > MaxPlayers {
				return refuse(OutOfRange, "capacity must be from 0 to %d, not %d", MaxPlayers, *capacity)
			}
			most = *capacity
		}
		if current < 0 || current > MaxPlayers {
			return refuse(OutOfRange, "current must be from 0 to %d, not %d", MaxPlayers, current)
		}
		bounded := most > 0 && (c.restored || c.words.capacity.said())
		if current > most && (capacity != nil || bounded) {
			return refuse(OutOfRange, "current must not be above capacity, which is %d, and is %d", most, current)
		}
		c.words.players = say(int32(current), now)
		c.words.roster, c.words.tracked = nil, time.Time{}
		c.anew = !c.restored
		if capacity != nil {
			c.words.capacity = say(int32(*capacity), now) //nolint:gosec // within bounds
		}
		return nil
	})
}

// SetPlayerCapacity sets how many may play. A game that does so and hasn't reported who plays
// has no players.
func (g *Game) SetPlayerCapacity(n int64) error {
	return g.do(sign, func(c *core, now time.Time) error {
		if n < 0 || n > MaxPlayers {
			return refuse(OutOfRange, "the capacity must be from 0 to %d, not %d", MaxPlayers, n)
		}
		c.words.capacity = say(int32(n), now)
		return nil
	})
}

// PlayerConnect adds a player; false if that one is there already. Before the operator has sent
// the earlier players, everybody counts as new and the capacity isn't checked.
func (g *Game) PlayerConnect(id string) (added bool, err error) {
	err = g.track(id, func(c *core, at int, now time.Time) error {
		if at >= 0 {
			// The current process reports the player, too.
			c.words.roster[at].at = now
			return nil
		}
		here := len(c.words.roster)
		if most := c.capacity(); c.restored && int64(here) >= int64(most) && (most > 0 || c.words.capacity.said()) {
			return refuse(OutOfRange, "the game is full: %d players are connected, which is its capacity", here)
		}
		if here >= reportapi.MaxPlayerIDs {
			return refuse(OutOfRange, "at most %d players can be named; a larger game says how many play with PUT /players", reportapi.MaxPlayerIDs)
		}
		c.words.roster = append(c.words.roster, say(id, now))
		added = true
		return nil
	})
	return added, err
}

// PlayerDisconnect removes a player; false if that one isn't there. Before the operator has
// sent the earlier players, it removes the player from those to come, and returns true.
func (g *Game) PlayerDisconnect(id string) (removed bool, err error) {
	err = g.track(id, func(c *core, at int, _ time.Time) error {
		if !c.restored {
			if len(c.left) >= reportapi.MaxPlayerIDs && !c.left[id] {
				return unavailable()
			}
			if c.left == nil {
				c.left = map[string]bool{}
			}
			c.left[id], removed = true, true
		}
		if at >= 0 {
			c.words.roster = slices.Delete(slices.Clone(c.words.roster), at, at+1)
			removed = true
		}
		return nil
	})
	return removed, err
}

// track changes the roster, which replaces a plain number.
func (g *Game) track(id string, change func(c *core, at int, now time.Time) error) error {
	return g.do(report, func(c *core, now time.Time) error {
		if err := value("a player's id", id); err != nil {
			return err
		}
		if err := change(c, c.words.find(id), now); err != nil {
			return err
		}
		c.words.tracked, c.words.players = now, word[int32]{}
		return nil
	})
}

// value checks a player's id or a list's value.
func value(what, text string) error {
	if text == "" {
		return refuse(Invalid, "%s must not be empty", what)
	}
	if len(text) > reportapi.MaxValueBytes {
		return refuse(Invalid, "%s has at most %d bytes, not %d", what, reportapi.MaxValueBytes, len(text))
	}
	return nil
}

func unavailable() error {
	return refuse(Unavailable, "the operator hasn't answered yet since this sidecar started; try again soon")
}
