package sim

import (
	"container/heap"
	"time"
)

// kind is what happens in an event.
type kind int

const (
	arrives  kind = iota // the player comes
	leaves               // the player has played
	givesUp              // the player has waited for too long
	boots                // the Server gets Ready
	decides              // the autoscaler looks
	rests                // the ElasticService looks whether it is to sleep
	releases             // a new version is out
)

// event is what happens at a time since the trace began.
type event struct {
	at     time.Duration
	number int // in the order in which they were made, which tells those of one time apart
	kind   kind
	player int
	server *server
}

// events are those to come, the next one first.
type events struct {
	list   []event
	number int
}

func (e *events) Len() int      { return len(e.list) }
func (e *events) Swap(i, j int) { e.list[i], e.list[j] = e.list[j], e.list[i] }
func (e *events) Push(x any)    { e.list = append(e.list, x.(event)) } //nolint:forcetypeassert // only add pushes
func (e *events) Less(i, j int) bool {
	if e.list[i].at != e.list[j].at {
		return e.list[i].at < e.list[j].at
	}
	return e.list[i].number < e.list[j].number
}

func (e *events) Pop() any {
	last := e.list[len(e.list)-1]
	e.list = e.list[:len(e.list)-1]
	return last
}

func (e *events) add(v event) {
	e.number++
	v.number = e.number
	heap.Push(e, v)
}

func (e *events) next() event { return heap.Pop(e).(event) } //nolint:forcetypeassert // only add pushes
