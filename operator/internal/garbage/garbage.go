// Package garbage sets how much garbage may be in the operator's heap before it is collected. Most of the heap is
// the cluster's objects, which live long, and each collection goes over all of them. At rest little garbage is made,
// and to let much be there would only take memory. At work, such as while a large Fleet starts, little of it would have
// the heap collected several times a second.
package garbage

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// How much garbage there may be, in percent of what lives: at rest and at least, and at work, which is what Go has by
// default. At work it is most bytes at most: new objects stand between the garbage, and Go can't give back what was
// between them. A new leader makes few that stay. It may have mostFirst for firstTime, in which thousands of sidecars
// come back and all objects have their first passes: collections took a third of its processor time in that, and two
// fifths while all services had a pass because resolvers had changed. So it is while a long backlog of passes is left.
const (
	atRest    = 8
	atWork    = 100
	most      = 48 << 20
	mostFirst = 2 * most
	firstTime = 30 * time.Second
)

const (
	// interval is how far apart looks are.
	interval = 2 * time.Second
	// There is work where more than much percent of what lives are made within often.
	often = 3 * time.Second
	much  = 15
	// busy is how many looks in a row must have found work, before that is more than a scrape of the metrics, and calm
	// how many none, before there is rest.
	busy, calm = 2, 5
	// At rest there is sudden work where so many collections come within suddenly: a scrape of the metrics brings one
	// or two. Looks find it seconds later, in which thousands of sidecars may have come to another replica.
	collections, suddenly = 6, time.Second
	// longBacklog is how many passes are left in one that is long.
	longBacklog = 500
	// putOff is how much more there may be while a collection is put off. Ten thousand Servers and as many services
	// are a scrape with two or three percent.
	putOff = 6
	// returnEvery is how far apart memory is given back at rest that nothing is in: Go keeps a tenth of the heap, and
	// what a peak has left.
	returnEvery = time.Minute
)

// Tuner sets the percentage while the operator runs. It is a manager.Runnable that runs on each replica.
type Tuner struct {
	// heap is how many bytes were made since the program began, and how many lived after the last collection.
	heap func() (made, lives uint64)
	// set sets the percentage, and giveBack gives unused memory back to the system.
	set      func(percent int)
	giveBack func()

	mu sync.Mutex
	// percent is how much there may be. Only the Tuner's own goroutine changes it, under mu.
	percent int
	// during is how many calls of PutOff are under way.
	during int
	// looked is when the last look was, and made what was made until then.
	looked time.Time
	made   uint64
	// worked is how many looks in a row have found work, and rested how many none.
	worked, rested int
	// returned is when memory was given back.
	returned time.Time
	// backlogs are how many passes are left of those that nobody waits for.
	backlogs []func() int
	// elected is closed once the replica leads, and first is until when it is a new leader, or has sudden work or
	// a long backlog.
	elected <-chan struct{}
	first   time.Time
	// collected tells of each collection, and last are when the last ones were, the oldest first.
	collected <-chan struct{}
	last      [collections]time.Time
}

// New makes a Tuner, which is told when the replica has been elected. Where GOGC is set, that holds, and New returns nil.
func New(elected <-chan struct{}) *Tuner {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	return &Tuner{
		heap: heap, set: func(percent int) { debug.SetGCPercent(percent) }, giveBack: debug.FreeOSMemory, percent: atWork,
		elected: elected, collected: collected(),
	}
}

// Backlog adds a backlog, before the operator runs: how many passes are left of it. A nil Tuner goes by none.
func (t *Tuner) Backlog(passes func() int) {
	if t != nil {
		t.backlogs = append(t.backlogs, passes)
	}
}

// hasLongBacklog reports whether many passes are left.
func (t *Tuner) hasLongBacklog() bool {
	left := 0
	for _, passes := range t.backlogs {
		left += passes()
	}
	return left >= longBacklog
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*Tuner) NeedLeaderElection() bool { return false }

// Start sets it until the context ends. Then it is again what it was.
func (t *Tuner) Start(ctx context.Context) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	t.looked = time.Now()
	t.made, _ = t.heap()
	for {
		select {
		case <-ctx.Done():
			t.to(atWork)
			return nil
		case <-t.elected:
			t.elected = nil
			t.begin(time.Now())
		case <-t.collected:
			t.collect(time.Now())
		case <-ticker.C:
			t.look(time.Now())
		}
	}
}

// begin begins the time of a new leader, or of sudden work.
func (t *Tuner) begin(now time.Time) {
	t.first = now.Add(firstTime)
	_, lives := t.heap()
	t.to(percentAtWork(lives, mostFirst))
}

// collect takes in a collection.
func (t *Tuner) collect(now time.Time) {
	copy(t.last[:], t.last[1:])
	t.last[collections-1] = now
	if t.percent == atRest && now.Sub(t.last[0]) <= suddenly {
		t.begin(now)
	}
}

// look sets what is right after what was made since the last look.
func (t *Tuner) look(now time.Time) {
	made, lives := t.heap()
	works := float64(made-t.made)/now.Sub(t.looked).Seconds()*often.Seconds() > float64(lives)*much/100
	t.looked, t.made = now, made
	if works {
		t.worked, t.rested = t.worked+1, 0
	} else {
		t.worked, t.rested = 0, t.rested+1
	}
	if until := now.Add(interval); until.After(t.first) && t.hasLongBacklog() {
		t.first = until
	}
	switch {
	case now.Before(t.first):
		t.to(percentAtWork(lives, mostFirst))
	case t.worked >= busy:
		t.to(percentAtWork(lives, most))
	case t.rested >= calm:
		t.to(atRest)
	}
	if t.percent == atRest && now.Sub(t.returned) >= returnEvery {
		t.returned = now
		t.giveBack()
	}
}

// to sets the percentage, if it is another one.
func (t *Tuner) to(percent int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.limit()
	t.percent = percent
	t.change(before)
}

// count counts calls of PutOff.
func (t *Tuner) count(more int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.limit()
	t.during += more
	t.change(before)
}

// change sets how much there may be, where that was something else before. The caller has locked mu, as for limit.
func (t *Tuner) change(before int) {
	if limit := t.limit(); limit != before {
		t.set(limit)
	}
}

// limit is how much there may be now.
func (t *Tuner) limit() int {
	if t.during > 0 {
		return t.percent + putOff
	}
	return t.percent
}

// PutOff does what takes a moment and leaves some garbage at once, and puts off the collection that this could bring.
// At rest whoever leaves much while there is one has to do most of its work, and a scrape of the metrics of thousands
// of objects took four times as long. A nil Tuner puts nothing off.
func (t *Tuner) PutOff(do func()) {
	if t == nil {
		do()
		return
	}
	t.count(1)
	defer t.count(-1)
	do()
}

// percentAtWork is how much there may be at work beside what lives, of most bytes at most.
func percentAtWork(lives, most uint64) int {
	if lives <= most {
		return atWork
	}
	return max(atRest, int(float64(most)*100/float64(lives)))
}

// collected tells of each collection, as long as the program runs.
func collected() <-chan struct{} {
	tell := make(chan struct{}, 1)
	watchNext(tell)
	return tell
}

// watchNext makes an object that nothing holds: the next collection finds that, and another one is made. Two that
// come at once may be told as one.
func watchNext(tell chan<- struct{}) {
	runtime.SetFinalizer(new([32]byte), func(*[32]byte) { // smaller ones share their memory with others
		select {
		case tell <- struct{}{}:
		default:
		}
		watchNext(tell)
	})
}

// heap reads what Go says of it.
func heap() (made, lives uint64) {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(samples)
	for i, to := range []*uint64{&made, &lives} {
		if samples[i].Value.Kind() == metrics.KindUint64 {
			*to = samples[i].Value.Uint64()
		}
	}
	return made, lives
}
