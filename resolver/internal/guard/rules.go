// Package guard decides which clients may ask for a service that has no backend up, and how
// much of a resolver one source of clients may take.
//
// It counts and never waits. Services share nothing in it but Share, and no table grows with
// the number of clients that ask: a source's rate is kept in a table of fixed size, and all
// else only while the source has clients.
package guard

import (
	"net/netip"
	"slices"
	"time"

	"dormouse.dev/dormouse/resolver/internal/proto"
)

// Rules are one service's settings. They are never changed.
type Rules struct {
	// Only reports whether nobody but Allow may wake the service.
	Only bool
	// Nobody reports whether no client may wake the service, wherever it comes from. It is for a
	// service that sleeps: while one wakes, clients may wait for it. So it changes while a client
	// stays, and Ask is told what Refuses says then.
	Nobody bool
	// DownUntil is until when no client may, because the service is kept asleep for maintenance;
	// zero: it isn't. It is for a service that sleeps, too.
	DownUntil time.Time
	// Allow and Deny are networks; Deny takes precedence.
	Allow, Deny []netip.Prefix
	// PerSourceRate and PerServiceRate are how many clients may ask in a minute; 0
	// is without a limit.
	PerSourceRate, PerServiceRate int32
	// PerSource bounds what one source has at once.
	PerSource Limits
	// SourceIPsPreserved reports whether addresses are those of clients, and not those of nodes
	// that stand for many.
	SourceIPsPreserved bool
}

// Limits bound what one source has at once; 0 is without a limit.
type Limits struct {
	// Connections are clients without a backend.
	Connections int32
	// Bytes is what is kept of those clients.
	Bytes int64
	// Sessions are all clients.
	Sessions int32
}

// NewRules parses networks that the API server has validated. Invalid ones are left out.
func NewRules(allow, deny []string) Rules {
	return Rules{Only: len(allow) > 0, Allow: prefixes(allow), Deny: prefixes(deny)}
}

// Hidden are the rules without those that need the source's address.
func (r Rules) Hidden() Rules {
	return Rules{Nobody: r.Nobody, DownUntil: r.DownUntil, PerServiceRate: r.PerServiceRate}
}

// Refuses is why no client may wake the service, wherever it comes from; empty: some may.
func (r *Rules) Refuses(now time.Time) proto.Reason {
	switch {
	case now.Before(r.DownUntil):
		return proto.Maintenance
	case r.Nobody:
		return proto.Denied
	}
	return ""
}

// Permits reports whether clients from an address may wake the service.
func (r *Rules) Permits(from netip.Addr) bool {
	from = from.Unmap()
	within := func(p netip.Prefix) bool { return p.Contains(from) }
	return !slices.ContainsFunc(r.Deny, within) && (!r.Only || slices.ContainsFunc(r.Allow, within))
}

func prefixes(texts []string) []netip.Prefix {
	var out []netip.Prefix
	for _, text := range texts {
		if p, err := netip.ParsePrefix(text); err == nil {
			out = append(out, p.Masked())
		}
	}
	return out
}

// sourceBits are the leading bits of an IPv6 address that identify a source: a household has 64
// bits of addresses at least. Answers are limited by larger prefixes: those of one network that
// could be flooded with them.
const (
	sourceBits   = 64
	prefixBits   = 56
	prefixBitsV4 = 24
)

// key is a source, or a prefix of several.
type key [16]byte

func sourceOf(from netip.Addr) key { return keyOf(from, 32, sourceBits) }
func prefixOf(from netip.Addr) key { return keyOf(from, prefixBitsV4, prefixBits) }

func keyOf(from netip.Addr, v4, v6 int) key {
	from = from.Unmap()
	bits := v6
	if from.Is4() {
		bits = v4
	}
	prefix, err := from.Prefix(bits)
	if err != nil {
		return key{}
	}
	return prefix.Addr().As16()
}
