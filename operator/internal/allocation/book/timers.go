package book

import (
	"container/heap"
	"time"
)

// due is when to look at an Allocation, or at a Server that was withdrawn. Each has one at most.
type due struct {
	at    time.Time
	space *space
	// One of both is set.
	entry  *entry
	server *server
	index  int
}

type dues []*due

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (d dues) Len() int           { return len(d) }
func (d dues) Less(i, j int) bool { return d[i].at.Before(d[j].at) }
func (d dues) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

func (d *dues) Push(x any) {
	item, _ := x.(*due)
	item.index = len(*d)
	*d = append(*d, item)
}

func (d *dues) Pop() any {
	last := len(*d) - 1
	item := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	item.index = -1
	return item
}

// set sets when something is due, and wakes who waits for that where it is the first.
func (b *Book) set(d *due, at time.Time) {
	d.at = at
	if d.index < 0 {
		heap.Push(&b.due, d)
	} else {
		heap.Fix(&b.due, d.index)
	}
	if d.index == 0 {
		b.hooks.Wakes()
	}
}

// unset ends that. A Server that was never withdrawn has none.
func (b *Book) unset(d *due) {
	if d != nil && d.index >= 0 {
		heap.Remove(&b.due, d.index)
	}
}

// Tick does what is due, and returns after how long to call it again at the latest.
func (b *Book) Tick() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	for len(b.due) > 0 && !b.due[0].at.After(now) {
		d, _ := heap.Pop(&b.due).(*due)
		if d.entry != nil {
			b.isDue(now, d.space, d.entry)
			continue
		}
		d.server.withdrawn = false
		d.space.place(d.server)
		b.serve(d.space, d.server)
	}
	if len(b.due) == 0 {
		return time.Hour
	}
	return b.due[0].at.Sub(now)
}
