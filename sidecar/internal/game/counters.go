package game

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/api/wellknown"
	"dormouse.dev/dormouse/internal/reportapi"
)

// MaxListCapacity is the most values that a list may hold.
const MaxListCapacity = 1000

// kept are the Server's counters and lists, with the values that the game gave them or else
// those of the spec; nil while they aren't known. They and the metadata belong to the Server: a
// game that starts again finds them.
func (c *core) kept() (map[string]v1alpha1.Counter, map[string]v1alpha1.List) {
	var counters map[string]v1alpha1.Counter
	for name, counter := range c.lastAnswer.Server.Counters {
		if counters == nil {
			counters = map[string]v1alpha1.Counter{}
		}
		if now, ok := c.counters[name]; ok {
			counter = now
		}
		counters[name] = counter
	}
	var lists map[string]v1alpha1.List
	for name, list := range c.lastAnswer.Server.Lists {
		if lists == nil {
			lists = map[string]v1alpha1.List{}
		}
		if now, ok := c.lists[name]; ok {
			list = now
		}
		list.Values = slices.Clone(list.Values)
		lists[name] = list
	}
	return counters, lists
}

// CounterUpdate is a change of a counter: first its capacity is set, then its count, and then
// Add is added. Nil and 0 change nothing.
type CounterUpdate struct {
	Capacity, Count *int64
	Add             int64
}

// Counter returns a counter of the Server.
func (g *Game) Counter(name string) (v1alpha1.Counter, error) {
	return g.UpdateCounter(name, CounterUpdate{})
}

// UpdateCounter changes a counter and returns the result. A capacity below the count reduces
// the count; a requested count must fit.
func (g *Game) UpdateCounter(name string, u CounterUpdate) (out v1alpha1.Counter, err error) {
	change := u != CounterUpdate{}
	err = g.do(heard(change), func(c *core, _ time.Time) error {
		if !c.restored {
			return unavailable()
		}
		counters, _ := c.kept()
		counter, ok := counters[name]
		if !ok {
			return refuse(NotFound, "the Server has no counter %q", name)
		}
		if u.Capacity != nil {
			if *u.Capacity < 0 {
				return refuse(OutOfRange, "a counter's capacity must be 0 or more, not %d", *u.Capacity)
			}
			counter.Capacity = *u.Capacity
			counter.Count = min(counter.Count, counter.Capacity)
		}
		if u.Count != nil {
			if *u.Count < 0 || *u.Count > counter.Capacity {
				return refuse(OutOfRange, "the count of %q must be from 0 to its capacity %d, not %d", name, counter.Capacity, *u.Count)
			}
			counter.Count = *u.Count
		}
		// Written so that it can't overflow.
		if u.Add > counter.Capacity-counter.Count || u.Add < -counter.Count {
			return refuse(OutOfRange, "the count of %q must stay from 0 to its capacity %d; it is %d and was to change by %d",
				name, counter.Capacity, counter.Count, u.Add)
		}
		counter.Count += u.Add
		if change {
			c.counters[name] = counter
		}
		out = counter
		return nil
	})
	return out, err
}

// List returns a list of the Server.
func (g *Game) List(name string) (v1alpha1.List, error) { return g.UpdateList(name, nil, nil) }

// UpdateList replaces a list's capacity, its values, or both, and returns the result. Values
// beyond a new capacity are dropped from the end; requested values must fit. Each value is kept
// once.
func (g *Game) UpdateList(name string, capacity *int64, values []string) (v1alpha1.List, error) {
	return g.list(name, capacity != nil || values != nil, func(list *v1alpha1.List) error {
		if capacity != nil {
			if *capacity < 0 || *capacity > MaxListCapacity {
				return refuse(OutOfRange, "a list's capacity must be from 0 to %d, not %d", MaxListCapacity, *capacity)
			}
			list.Capacity = *capacity
			if int64(len(list.Values)) > *capacity {
				list.Values = list.Values[:*capacity]
			}
		}
		if values == nil {
			return nil
		}
		list.Values = nil
		seen := map[string]bool{}
		for _, v := range values {
			if err := value("a list's value", v); err != nil {
				return err
			}
			if !seen[v] {
				seen[v] = true
				list.Values = append(list.Values, v)
			}
		}
		if int64(len(list.Values)) > list.Capacity {
			return refuse(OutOfRange, "the list %q holds at most %d values, not %d", name, list.Capacity, len(list.Values))
		}
		return nil
	})
}

// AddListValue adds a value to a list and returns the result.
func (g *Game) AddListValue(name, added string) (v1alpha1.List, error) {
	return g.list(name, true, func(list *v1alpha1.List) error {
		if err := value("a list's value", added); err != nil {
			return err
		}
		if slices.Contains(list.Values, added) {
			return refuse(AlreadyExists, "the list %q has the value %q already", name, added)
		}
		if int64(len(list.Values)) >= list.Capacity {
			return refuse(OutOfRange, "the list %q is full: it holds %d values, which is its capacity", name, len(list.Values))
		}
		list.Values = append(list.Values, added)
		return nil
	})
}

// RemoveListValue removes a value from a list and returns the result.
func (g *Game) RemoveListValue(name, removed string) (v1alpha1.List, error) {
	return g.list(name, true, func(list *v1alpha1.List) error {
		at := slices.Index(list.Values, removed)
		if at < 0 {
			return refuse(NotFound, "the list %q has no value %q", name, removed)
		}
		list.Values = slices.Delete(list.Values, at, at+1)
		return nil
	})
}

func (g *Game) list(name string, change bool, how func(*v1alpha1.List) error) (out v1alpha1.List, err error) {
	err = g.do(heard(change), func(c *core, _ time.Time) error {
		if !c.restored {
			return unavailable()
		}
		_, lists := c.kept()
		list, ok := lists[name]
		if !ok {
			return refuse(NotFound, "the Server has no list %q", name)
		}
		if err := how(&list); err != nil {
			return err
		}
		if change {
			c.lists[name] = list
		}
		out = *list.DeepCopy()
		return nil
	})
	return out, err
}

// SetLabel sets a label on the Server. Its key gets the prefix wellknown.SDKMetadataPrefix.
func (g *Game) SetLabel(key, text string) error {
	if problems := validation.IsValidLabelValue(text); len(problems) > 0 {
		return refuse(Invalid, "this can't be a label's value: %s", strings.Join(problems, "; "))
	}
	return g.set("labels", func(c *core) map[string]string { return c.labels }, key, text)
}

// SetAnnotation sets an annotation on the Server. Its key gets the prefix
// wellknown.SDKMetadataPrefix.
func (g *Game) SetAnnotation(key, text string) error {
	if len(text) > reportapi.MaxAnnotationBytes {
		return refuse(Invalid, "an annotation's value has at most %d bytes, not %d", reportapi.MaxAnnotationBytes, len(text))
	}
	return g.set("annotations", func(c *core) map[string]string { return c.annotations }, key, text)
}

func (g *Game) set(what string, where func(*core) map[string]string, key, text string) error {
	key = wellknown.SDKMetadataPrefix + key
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		return refuse(Invalid, "the key can't be %q: %s", key, strings.Join(problems, "; "))
	}
	return g.do(sign, func(c *core, _ time.Time) error {
		all := where(c)
		if _, ok := all[key]; !ok && len(all) >= reportapi.MaxMetadata {
			return refuse(OutOfRange, "a game can set at most %d %s", reportapi.MaxMetadata, what)
		}
		more := len(key) + len(text)
		if now, ok := all[key]; ok {
			more -= len(key) + len(now)
		}
		if total := metadataBytes(c.labels, c.annotations) + more; more > 0 && total > reportapi.MaxMetadataBytes {
			return refuse(OutOfRange, "a game's labels and annotations have at most %d bytes together, not %d", reportapi.MaxMetadataBytes, total)
		}
		all[key] = text
		return nil
	})
}

// metadataBytes counts keys and values, as the operator does.
func metadataBytes(all ...map[string]string) int {
	total := 0
	for _, metadata := range all {
		for key, text := range metadata {
			total += len(key) + len(text)
		}
	}
	return total
}
