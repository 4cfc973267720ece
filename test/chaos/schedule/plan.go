// Package schedule decides by a seed what breaks when, and which players come to which games.
// It knows nothing of how a fault is made, or of what came of it.
package schedule

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"dormouse.dev/dormouse/test/env"
)

// Bounds of a plan.
const (
	// Lead is the time before the first fault and after the last one.
	Lead = 8 * time.Second
	// Quiet time between two faults, beyond what recovery takes.
	shortestGap, longestGap = 2 * time.Second, 6 * time.Second
	// A stay is how long a player plays after its first reply. It is below the
	// local cluster's --drain-timeout.
	shortestStay, longestStay = 2 * time.Second, 40 * time.Second
	// The local cluster has two processors for all of Kubernetes.
	shortestInterval, longestInterval = 20 * time.Millisecond, 100 * time.Millisecond
	// MaxPlayers is how many play at once, of all games.
	MaxPlayers = 60
	maxParty   = 10
	// awakeBy is when a game mostly is awake that somebody came to.
	awakeBy = 7 * time.Second
	// shortestPause is less than a game takes to fall asleep: some nearly do.
	shortestPause, longestPause = 4 * time.Second, 30 * time.Second
)

// Fault is one thing that is broken for a while.
type Fault struct {
	Kind   Kind
	At     time.Duration
	Length time.Duration
	// Node is the node, where a kind has a choice.
	Node int
}

// Session is one player's session.
type Session struct {
	At       time.Duration
	Game     int
	Network  string
	Port     int32
	Stay     time.Duration
	Interval time.Duration
}

// Plan is what chance decides in a run.
type Plan struct {
	Seed     uint64
	Duration time.Duration
	Faults   []Fault
	// Sessions go on a while after Duration, for faults that took longer than
	// planned.
	Sessions []Session
}

// doors are the ports that players may come to.
type doors struct {
	tcp, udp []int32
}

// NewPlan decides everything by the seed: faults of the kinds, each of them at
// least once, and visits to the games.
func NewPlan(seed uint64, duration time.Duration, of []Kind, games []env.Game) (Plan, error) {
	faults, err := planFaults(rand.New(rand.NewPCG(seed, 1)), duration, of)
	if err != nil {
		return Plan{}, err
	}
	// A stream of its own: the players' plan is the same for any faults.
	sessions := planSessions(rand.New(rand.NewPCG(seed, 2)), duration+duration/2, doorsOf(games))
	return Plan{Seed: seed, Duration: duration, Faults: faults, Sessions: sessions}, nil
}

// planFaults goes round after round through all kinds in random order, one
// fault at a time. The first round is made to fit the duration.
func planFaults(r *rand.Rand, duration time.Duration, of []Kind) ([]Fault, error) {
	var least, most time.Duration
	for _, k := range of {
		t := timings[k]
		least += t.shortest + t.recovery + shortestGap
		most += t.longest + t.recovery + longestGap
	}
	room := duration - 2*Lead
	if room < least {
		return nil, fmt.Errorf("plan %d kinds of faults: a duration of %s is too short, want %s at least", len(of), duration, least+2*Lead)
	}
	// How much of what is above the shortest the first round may use.
	spare := min(1, float64(room-least)/float64(max(most-least, 1)))
	var faults []Fault
	at := Lead
	for round := 0; ; round++ {
		share := 1.0
		if round == 0 {
			share = spare
		}
		for _, k := range order(r, of) {
			f := Fault{Kind: k, At: at, Length: between(r, timings[k].shortest, timings[k].longest, share), Node: 1 + r.IntN(2)}
			gap := between(r, shortestGap, longestGap, share)
			if round > 0 && at > duration/2 {
				// One operator lives through the second half, for its memory to
				// say something.
				if k == LeaderKilled {
					continue
				}
				if k == LeaderPaused {
					f.Length = min(f.Length, leaseKept)
				}
			}
			next := at + f.Length + timings[k].recovery + gap
			if round > 0 && next > duration-Lead {
				return faults, nil
			}
			faults = append(faults, f)
			at = next
		}
	}
}

// order is a random one in which the leader's end comes in the first half.
func order(r *rand.Rand, of []Kind) []Kind {
	shuffled := slices.Clone(of)
	r.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	if i := slices.Index(shuffled, LeaderKilled); i >= (len(shuffled)+1)/2 {
		j := i - len(shuffled)/2
		shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
	}
	return shuffled
}

// planSessions lets a party of players come to each game, leave, and the next
// party come after a quiet time in which the game may fall asleep. A player over
// UDP who was held keeps the resolver, and with it the game, busy for two
// minutes of silence: for the games to sleep often enough, half of the parties
// play over TCP only, and in most others UDP comes once the game is awake.
func planSessions(r *rand.Rand, until time.Duration, games []doors) []Session {
	var sessions []Session
	for g, door := range games {
		at := time.Duration(r.Int64N(int64(longestPause / 3)))
		for at < until {
			end := at
			come := at
			udpFrom := []time.Duration{at, at + awakeBy, at + awakeBy, until, until, until}[r.IntN(6)]
			for range 1 + r.IntN(maxParty) {
				v := Session{
					At: come, Game: g, Network: "tcp",
					Stay:     between(r, shortestStay, longestStay, r.Float64()),
					Interval: between(r, shortestInterval, longestInterval, 1),
				}
				if len(door.tcp) == 0 || (len(door.udp) > 0 && come >= udpFrom && r.IntN(3) > 0) {
					v.Network = "udp"
				}
				ports := door.tcp
				if v.Network == "udp" {
					ports = door.udp
				}
				v.Port = ports[r.IntN(len(ports))]
				if playing(sessions, v) < MaxPlayers {
					sessions = append(sessions, v)
					end = max(end, v.At+v.Stay)
				}
				// Some come at once, and are held together.
				if r.IntN(3) > 0 {
					come += time.Duration(r.Int64N(int64(8 * time.Second)))
				}
			}
			at = end + between(r, shortestPause, longestPause, 1)
		}
	}
	slices.SortStableFunc(sessions, func(a, b Session) int { return cmp.Compare(a.At, b.At) })
	return sessions
}

// playing counts those who by the plan are there at any time of a visit.
func playing(sessions []Session, v Session) int {
	n := 0
	for _, other := range sessions {
		if other.At < v.At+v.Stay && v.At < other.At+other.Stay {
			n++
		}
	}
	return n
}

// between is a random duration in whole milliseconds. A share below 1 keeps it
// near the shortest.
func between(r *rand.Rand, shortest, longest time.Duration, share float64) time.Duration {
	d := shortest + time.Duration(r.Float64()*share*float64(longest-shortest))
	return d.Truncate(time.Millisecond)
}
