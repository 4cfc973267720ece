package run

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"dormouse.dev/dormouse/resolver/internal/options"
)

// plane has a client for a number of looks.
type plane struct{ left atomic.Int32 }

func (c *plane) Clients() int { return int(max(c.left.Add(-1), 0)) }

// listing is listed for a number of looks.
type listing struct{ left atomic.Int32 }

func (l *listing) Listed() int { return int(max(l.left.Add(-1), 0)) }

func TestDrain(t *testing.T) {
	cases := map[string]struct {
		looks, listed  int32
		opts           options.Options
		atLeast, below time.Duration
	}{
		"nobody is carried":                                          {opts: options.Options{DrainTimeout: time.Hour}, below: drainLook},
		"clients are taken for the delay":                            {opts: options.Options{DrainDelay: 300 * time.Millisecond, DrainTimeout: time.Hour}, atLeast: 300 * time.Millisecond, below: 5 * time.Second},
		"clients are carried until they are gone":                    {looks: 4, opts: options.Options{DrainTimeout: time.Hour}, atLeast: 2 * drainLook, below: 5 * time.Second},
		"clients are taken while a slice lists the resolver":         {listed: 8, opts: options.Options{DrainTimeout: time.Hour}, atLeast: 2 * drainLook, below: 5 * time.Second},
		"and for the delay after that":                               {listed: 4, opts: options.Options{DrainDelay: 300 * time.Millisecond, DrainTimeout: time.Hour}, atLeast: 300*time.Millisecond + drainLook, below: 5 * time.Second},
		"a slice that is never changed does not hold it up for ever": {listed: 1 << 30, opts: options.Options{DrainTimeout: 2 * drainLook}, atLeast: 2 * drainLook, below: 5 * time.Second},
		"clients are carried no longer than that":                    {looks: 1 << 30, opts: options.Options{DrainTimeout: 2 * drainLook}, atLeast: 2 * drainLook, below: 5 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := &plane{}
			c.left.Store(tc.looks)
			l := &listing{}
			l.left.Store(tc.listed)
			began := time.Now()
			drain(context.Background(), c, l, tc.opts, logr.Discard())
			if took := time.Since(began); took < tc.atLeast || took > tc.below {
				t.Errorf("it took %s, want from %s to %s", took, tc.atLeast, tc.below)
			}
		})
	}
}
