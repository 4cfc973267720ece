package hold

import (
	"testing"
	"time"

	"dormouse.dev/dormouse/resolver/internal/wake"
)

func TestHope(t *testing.T) {
	t.Parallel()
	type answer struct {
		seconds float64
		outcome wake.Outcome
		lost    bool
	}
	no := func(seconds float64, lost bool) answer { return answer{seconds, wake.NotFound, lost} }
	for name, answers := range map[string][]answer{
		"one answer says little":               {no(0, false)},
		"three seconds of them say all":        {no(0, false), no(1, false), no(2.9, false), no(3, true), no(3.2, true)},
		"an accepted call begins anew":         {no(0, false), no(2, false), {2.5, wake.Accepted, false}, no(3, false), no(5.9, false), no(6, true)},
		"a call that failed says nothing":      {no(0, false), {1, wake.TimedOut, false}, {2, wake.Unavailable, false}, no(3, true), {3.5, wake.TimedOut, false}, no(4, true)},
		"nor do many that failed":              {no(0, false), no(2, false), {3, wake.TimedOut, false}, {5, wake.TimedOut, false}, no(6, false), no(9, true)},
		"an API backend that is away":          {{0, wake.Unavailable, false}, {60, wake.Unavailable, false}},
		"answers that are far apart":           {no(0, false), no(4, false), no(8, false), no(9, false), no(11, true)},
		"the next client is refused at once":   {no(0, false), no(3, true), no(40, true), no(90, true)},
		"what was long ago doesn't count":      {no(0, false), no(3, true), no(64, false), no(67, true)},
		"a target that came back is hoped for": {no(0, false), no(3, true), {4, wake.Accepted, false}, no(5, false)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var h nothingToWake
			begin := time.Now()
			for _, a := range answers {
				at := begin.Add(time.Duration(a.seconds * float64(time.Second)))
				if lost := h.answered(at, a.outcome); lost != a.lost {
					t.Errorf("after %s at %v s lost is %v, want %v", a.outcome, a.seconds, lost, a.lost)
				}
			}
		})
	}
}

func TestAPageSaysThatThereIsNothingToWakeOnceThatIsCertain(t *testing.T) {
	t.Parallel()
	type answer struct {
		seconds float64
		outcome wake.Outcome
		certain bool
	}
	no := func(seconds float64, certain bool) answer { return answer{seconds, wake.NotFound, certain} }
	later := func(seconds float64, certain bool) answer { return answer{seconds, "", certain} }
	for name, answers := range map[string][]answer{
		"nobody has asked":                  {later(0, false)},
		"one answer says little":            {no(0, false), later(4, false)},
		"nor does an old one":               {no(0, false), later(60, false), no(60, false)},
		"the page asks every five seconds":  {no(0, false), no(5.2, true)},
		"or once a minute then":             {no(0, false), no(5.2, true), no(65.5, true), later(125, true), no(126, true)},
		"what was long ago doesn't count":   {no(0, false), no(5.2, true), later(126, false), no(126, false)},
		"an accepted call begins anew":      {no(0, false), no(5, true), {6, wake.Accepted, false}, no(7, false), no(10, true)},
		"a call that failed says nothing":   {no(0, false), {3, wake.TimedOut, false}, no(5, true), {6, wake.TimedOut, true}, later(125, true), later(126, false)},
		"a held client is certain for both": {no(0, false), no(1, false), no(2, false), no(3, true)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var n nothingToWake
			begin := time.Now()
			for _, a := range answers {
				at := begin.Add(time.Duration(a.seconds * float64(time.Second)))
				if a.outcome != "" {
					n.answered(at, a.outcome)
				}
				if certain := n.knows(at); certain != a.certain {
					t.Errorf("after %q at %v s certain is %v, want %v", a.outcome, a.seconds, certain, a.certain)
				}
			}
		})
	}
}
