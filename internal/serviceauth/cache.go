package serviceauth

import (
	"container/list"
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"
)

// maxCached bounds the cache: as many sidecars as a replica may have, and their previous
// tokens. A token takes about 300 bytes of it.
const maxCached = 32768

type tokenSum = [sha256.Size]byte

// cache remembers tokens that were found valid, the latest used ones. Invalid tokens are not
// remembered: anybody can make any number of them.
type cache struct {
	limit int

	mu sync.Mutex
	// set is the key set that the entries were verified with. With another one, which may lack
	// a withdrawn key, the cache starts empty.
	set     *keySet
	entries map[tokenSum]*list.Element
	// order has the most recently used entry in front.
	order *list.List
}

type entry struct {
	sum      tokenSum
	identity Identity
	until    time.Time
}

func newCache(limit int) *cache {
	return &cache{limit: limit, entries: map[tokenSum]*list.Element{}, order: list.New()}
}

func (c *cache) get(sum tokenSum, set *keySet, now time.Time) (Identity, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	element, ok := c.entries[sum]
	if !ok || c.set != set {
		return Identity{}, false
	}
	e := element.Value.(*entry)
	if !now.Before(e.until) {
		c.order.Remove(element)
		delete(c.entries, sum)
		return Identity{}, false
	}
	c.order.MoveToFront(element)
	return e.identity, true
}

func (c *cache) add(sum tokenSum, set *keySet, identity Identity, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.set != set {
		c.set = set
		clear(c.entries)
		c.order.Init()
	}
	if element, ok := c.entries[sum]; ok {
		element.Value.(*entry).until = until
		return
	}
	c.entries[sum] = c.order.PushFront(&entry{sum: sum, identity: identity, until: until})
	for len(c.entries) > c.limit {
		oldest := c.order.Back()
		c.order.Remove(oldest)
		delete(c.entries, oldest.Value.(*entry).sum)
	}
}

// equal reports whether two sets trust the same keys, so that the cache can be kept.
func (s *keySet) equal(other *keySet) bool {
	if s == nil || other == nil || s.issuer != other.issuer {
		return false
	}
	a, errA := json.Marshal(s.byID)
	b, errB := json.Marshal(other.byID)
	return errA == nil && errB == nil && string(a) == string(b)
}
