package schedule

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const short = 3 * time.Minute

func newPlan(t *testing.T, seed uint64, duration time.Duration) Plan {
	t.Helper()
	plan, err := NewPlan(seed, duration, Kinds(), Games(""))
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func TestASeedMeansTheSamePlanEachTime(t *testing.T) {
	if diff := cmp.Diff(newPlan(t, 7, short), newPlan(t, 7, short)); diff != "" {
		t.Error(diff)
	}
	if cmp.Equal(newPlan(t, 7, short).Faults, newPlan(t, 8, short).Faults) {
		t.Error("two seeds have the same faults")
	}
}

func TestEveryKindOfFaultFitsIntoThreeMinutes(t *testing.T) {
	for seed := range uint64(500) {
		faults := newPlan(t, seed, short).Faults
		for _, k := range Kinds() {
			if !slices.ContainsFunc(faults, func(f Fault) bool { return f.Kind == k }) {
				t.Fatalf("seed %d: no %s in %v", seed, k, faults)
			}
		}
		last := faults[len(faults)-1]
		if end := last.At + last.Length + timings[last.Kind].recovery; end > short-Lead {
			t.Fatalf("seed %d: the last fault is over at %s, want %s before the end", seed, end, Lead)
		}
	}
}

func TestFaultsComeOneAfterTheOther(t *testing.T) {
	for _, duration := range []time.Duration{short, 30 * time.Minute} {
		for seed := range uint64(100) {
			before := Fault{At: Lead - shortestGap}
			for _, f := range newPlan(t, seed, duration).Faults {
				if free := before.At + before.Length + timings[before.Kind].recovery + shortestGap; f.At < free {
					t.Fatalf("seed %d: %v begins before %s, when %v is over", seed, f, free, before)
				}
				if f.Length < timings[f.Kind].shortest || f.Length > timings[f.Kind].longest {
					t.Fatalf("seed %d: %v is of no length that its kind has", seed, f)
				}
				before = f
			}
		}
	}
}

func TestALeaderLivesThroughTheSecondHalf(t *testing.T) {
	const long = 30 * time.Minute
	for seed := range uint64(100) {
		for _, f := range newPlan(t, seed, long).Faults {
			if f.At > long/2 && (f.Kind == LeaderKilled || (f.Kind == LeaderPaused && f.Length > leaseKept)) {
				t.Fatalf("seed %d: %v", seed, f)
			}
		}
	}
}

func TestATooShortRunIsRefused(t *testing.T) {
	if _, err := NewPlan(1, time.Minute, Kinds(), Games("")); err == nil {
		t.Error("a minute was taken for all kinds of faults")
	}
	if _, err := NewPlan(1, time.Minute, []Kind{NodeCut}, Games("")); err != nil {
		t.Errorf("a minute for one kind: %v", err)
	}
}

func TestPlayersComeByEveryDoorWithinBounds(t *testing.T) {
	gs := Games("")
	for seed := range uint64(20) {
		plan := newPlan(t, seed, 10*time.Minute)
		used := map[Session]bool{}
		for i, v := range plan.Sessions {
			if v.Stay < shortestStay || v.Stay > longestStay || v.Interval < shortestInterval || v.Interval > longestInterval {
				t.Fatalf("seed %d: %+v is out of bounds", seed, v)
			}
			if n := playing(plan.Sessions[:i], v); n >= MaxPlayers {
				t.Fatalf("seed %d: %d play when visit %d comes, want fewer than %d", seed, n, i, MaxPlayers)
			}
			used[Session{Game: v.Game, Network: v.Network, Port: v.Port}] = true
		}
		for i, g := range gs {
			for _, p := range g.TCP {
				if !used[Session{Game: i, Network: "tcp", Port: p}] {
					t.Errorf("seed %d: nobody comes to %s by TCP port %d", seed, g.Name, p)
				}
			}
			for _, p := range g.UDP {
				if !used[Session{Game: i, Network: "udp", Port: p}] {
					t.Errorf("seed %d: nobody comes to %s by UDP port %d", seed, g.Name, p)
				}
			}
		}
	}
}
