package planner

import (
	"errors"
	"fmt"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/endpoints"
	"dormouse.dev/dormouse/operator/internal/times"
)

// clients are the clients of all resolvers together.
type clients struct {
	sessions, queued int32
	// active are those of the sessions that keep the service awake.
	active     int32
	lastActive time.Time
	// watched is since when all resolvers have watched, where every client goes through them;
	// zero where that doesn't matter.
	watched time.Time
	err     error
}

func sumClients(now time.Time, resolvers []endpoints.Resolver, handoff v1alpha1.Handoff) clients {
	var c clients
	var errs []error
	for _, r := range resolvers {
		if !r.Reachable {
			// Nodes send clients to a pod that is ready, whoever else can't reach it.
			if r.Ready || now.Sub(r.SilentSince) < endpoints.LostAfter {
				errs = append(errs, fmt.Errorf("resolver %s doesn't answer: %w", r.PodName, r.Err))
			}
			continue
		}
		c.sessions += r.Sessions
		c.active += max(0, r.Sessions-max(0, r.Unvalidated))
		c.queued += r.Queued
		c.lastActive = times.Latest(c.lastActive, r.LastActive)
		if r.LastActive.IsZero() && handoff == v1alpha1.HandoffNever {
			c.watched = times.Latest(c.watched, r.Started) // what was before it started is not known
		}
	}
	c.err = errors.Join(errs...)
	return c
}

// LastActive is when a resolver last had a client that keeps the service awake: now, where one has.
func LastActive(now time.Time, resolvers []endpoints.Resolver) time.Time {
	c := sumClients(now, resolvers, "")
	if c.active > 0 || c.queued > 0 {
		return now
	}
	return c.lastActive
}
