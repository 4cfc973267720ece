package slim

import (
	"strings"
	"sync"
)

const (
	// maxWords bounds how many strings are shared, and maxWord how long each may be, in bytes: together
	// 4 MiB, where many are that long.
	maxWords = 16 << 10
	maxWord  = 256
)

// words are the strings of which objects share one. They are held here: what only objects hold would be
// shared until the next collection of garbage alone.
var words = struct {
	sync.RWMutex
	all map[string]string
}{all: map[string]string{}}

// String is one that is equal, which all that were given it share.
func String(s string) string {
	if s == "" || len(s) > maxWord {
		return s
	}
	words.RLock()
	have, ok := words.all[s]
	words.RUnlock()
	if ok {
		return have
	}
	s = strings.Clone(s) // it may be a part of a whole object's text
	words.Lock()
	defer words.Unlock()
	if len(words.all) >= maxWords {
		clear(words.all)
	}
	words.all[s] = s
	return s
}

// word is String for a text of any type.
func word[T ~string](s T) T { return T(String(string(s))) }

// within is a text as a part of another one, where it is one.
func within(whole, part string) string {
	if i := strings.Index(whole, part); i >= 0 {
		return whole[i : i+len(part)]
	}
	return part
}

// pointer is a pointer to an equal text, which others have.
func pointer[T ~string](pool *Pool[*T], text *T) *T {
	if text == nil || len(*text) > maxWord {
		return text
	}
	return pool.One(string(*text), text)
}
