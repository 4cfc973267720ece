package book

import "slices"

// set is a set from which any item can be had.
type set[T comparable] struct {
	items []T
	at    map[T]int
}

func (s *set[T]) add(item T) {
	if _, ok := s.at[item]; ok {
		return
	}
	if s.at == nil {
		s.at = map[T]int{}
	}
	s.at[item] = len(s.items)
	s.items = append(s.items, item)
}

func (s *set[T]) remove(item T) {
	i, ok := s.at[item]
	if !ok {
		return
	}
	last := s.items[len(s.items)-1]
	s.items[i], s.at[last] = last, i
	s.items = slices.Delete(s.items, len(s.items)-1, len(s.items))
	delete(s.at, item)
}

// ranked has items by rank. There are few different ranks: places on a Server, Servers on a node.
type ranked[T comparable] struct {
	ranks []int
	sets  map[int]*set[T]
}

func (r *ranked[T]) add(rank int, item T) {
	s := r.sets[rank]
	if s == nil {
		if r.sets == nil {
			r.sets = map[int]*set[T]{}
		}
		s = &set[T]{}
		r.sets[rank] = s
		i, _ := slices.BinarySearch(r.ranks, rank)
		r.ranks = slices.Insert(r.ranks, i, rank)
	}
	s.add(item)
}

func (r *ranked[T]) remove(rank int, item T) {
	s := r.sets[rank]
	if s == nil {
		return
	}
	s.remove(item)
	if len(s.items) > 0 {
		return
	}
	delete(r.sets, rank)
	if i, ok := slices.BinarySearch(r.ranks, rank); ok {
		r.ranks = slices.Delete(r.ranks, i, i+1)
	}
}

// first is an item of the lowest rank from least on, or, from the top, of the highest; the first that
// is wanted. Nil wants any.
func (r *ranked[T]) first(least int, fromTop bool, wanted func(T) bool) (item T, rank int, ok bool) {
	from, _ := slices.BinarySearch(r.ranks, least)
	ranks := r.ranks[from:]
	for i := range ranks {
		rank := ranks[i]
		if fromTop {
			rank = ranks[len(ranks)-1-i]
		}
		for _, item := range slices.Backward(r.sets[rank].items) {
			if wanted == nil || wanted(item) {
				return item, rank, true
			}
		}
	}
	return item, 0, false
}
