package proto

import "dormouse.dev/dormouse/api/v1alpha1"

// Players says which players may wake a service. It is never changed. A nil Players lets
// all.
type Players struct {
	allow, deny map[string]struct{}
	// only says that nobody may but those in allow.
	only bool
	// Message is told to those who may not; empty: the protocol's own.
	Message string
}

// NewPlayers makes one that lets all.
func NewPlayers(message string) *Players {
	return &Players{allow: map[string]struct{}{}, deny: map[string]struct{}{}, Message: message}
}

// Allow lets nobody but these, by their digests, and those who were allowed before.
func (p *Players) Allow(digests ...string) *Players {
	p.only = true
	for _, d := range digests {
		p.allow[d] = struct{}{}
	}
	return p
}

// Deny refuses these, by their digests.
func (p *Players) Deny(digests ...string) *Players {
	for _, d := range digests {
		p.deny[d] = struct{}{}
	}
	return p
}

// May says that a player may wake the service, who said a name and, maybe, a UUID.
func (p *Players) May(name, uuid string) bool {
	if p == nil {
		return true
	}
	in := func(set map[string]struct{}) bool {
		_, named := set[v1alpha1.PlayerDigest(name)]
		_, known := set[v1alpha1.PlayerDigest(uuid)]
		return named || uuid != "" && known
	}
	return !in(p.deny) && (!p.only || in(p.allow))
}
