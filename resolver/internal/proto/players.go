package proto

import (
	"slices"
	"sort"
	"strings"
	"unique"

	"dormouse.dev/dormouse/api/v1alpha1"
)

// Players are the players who may wake a service. It is never changed. A nil Players allows
// everybody.
type Players struct {
	allow, deny PlayerList
	// only reports whether only the players in allow may.
	only bool
	// Message is sent to players who may not; empty: the protocol's own message.
	Message string
}

// NewPlayers makes one that allows everybody.
func NewPlayers(message string) *Players { return &Players{Message: message} }

// Allow allows only these, and those who were allowed before.
func (p *Players) Allow(list PlayerList) *Players {
	p.only, p.allow = true, append(p.allow, list...)
	return p
}

// Deny denies these.
func (p *Players) Deny(list PlayerList) *Players {
	p.deny = append(p.deny, list...)
	return p
}

// May reports whether a player may wake the service, given the name and, where the client sends
// one, the UUID.
func (p *Players) May(name, uuid string) bool {
	if p == nil {
		return true
	}
	is := []string{v1alpha1.PlayerDigest(name)}
	if uuid != "" {
		is = append(is, v1alpha1.PlayerDigest(uuid))
	}
	in := func(list PlayerList) bool { return slices.ContainsFunc(is, list.has) }
	return !in(p.deny) && (!p.only || in(p.allow))
}

// PlayerList are digests of players. Each of its strings has any number of them, one after the
// other and in order. Equal lists share their memory, because many services may name one list.
type PlayerList []string

// digestBytes is how long a PlayerDigest is.
const digestBytes = 12

// PackPlayers makes a list of digests, or of lists. Strings that are shorter than a digest are
// left out.
func PackPlayers(digests []string) PlayerList {
	var all []string
	for _, some := range digests {
		for ; len(some) >= digestBytes; some = some[digestBytes:] {
			all = append(all, some[:digestBytes])
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	return PlayerList{unique.Make(strings.Join(slices.Compact(all), "")).Value()}
}

func (l PlayerList) has(digest string) bool {
	return slices.ContainsFunc(l, func(packed string) bool {
		_, found := sort.Find(len(packed)/digestBytes, func(i int) int {
			return strings.Compare(digest, packed[i*digestBytes:(i+1)*digestBytes])
		})
		return found
	})
}
