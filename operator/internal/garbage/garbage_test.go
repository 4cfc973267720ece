package garbage

import (
	"context"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

const mebibyte = 1 << 20

// program is what a Tuner is about.
type program struct {
	*Tuner
	now         time.Time
	bytes, live uint64
	percents    []int
	gave        int
}

func newProgram(live uint64) *program {
	p := &program{now: time.Unix(1_800_000_000, 0), live: live}
	p.Tuner = &Tuner{
		heap:     func() (made, lives uint64) { return p.bytes, p.live },
		set:      func(percent int) { p.percents = append(p.percents, percent) },
		giveBack: func() { p.gave++ },
		percent:  atWork,
		looked:   p.now,
	}
	return p
}

// makes looks after a time in which so much is made a second.
func (p *program) makes(second uint64, after time.Duration) {
	p.now = p.now.Add(after)
	p.bytes += uint64(float64(second) * after.Seconds())
	p.look(p.now)
}

// Ten thousand Servers at rest make three mebibytes a second, and twelve or more while they start.
const rest, work = 3 * mebibyte, 12 * mebibyte

func TestThereIsMoreGarbageAtWork(t *testing.T) {
	p := newProgram(150 * mebibyte)
	is := func(when string, gave int, percents ...int) {
		t.Helper()
		if !slices.Equal(p.percents, percents) || p.gave != gave {
			t.Errorf("%s: it set %v and gave memory back %d times, want %v and %d", when, p.percents, p.gave, percents, gave)
		}
	}
	for range calm - 1 {
		p.makes(rest, interval)
	}
	is("a pause", 0)
	p.makes(rest, interval)
	is("rest", 1, atRest)
	for range int(returnEvery/interval) - 1 {
		p.makes(rest, interval)
	}
	is("less than a minute later", 1, atRest)
	p.makes(rest, interval)
	is("a minute later", 2, atRest)
	p.makes(rest, returnEvery) // the ticks were late
	is("what was made in a longer time", 3, atRest)
	p.makes(work, interval)
	p.makes(rest, interval)
	p.makes(work, interval)
	is("two scrapes", 3, atRest)
	p.makes(work, interval)
	is("work", 3, atRest, 32)
	for range calm - 1 {
		p.makes(0, interval)
	}
	p.makes(work, interval)
	p.makes(0, interval)
	is("work with pauses", 3, atRest, 32)
}

// A new leader may have more garbage at once, and for half a minute: its first passes are over before two looks have
// found work. Then it is as any other replica.
func TestANewLeaderMayHaveMoreGarbageAtOnce(t *testing.T) {
	p := newProgram(192 * mebibyte)
	p.percent = atRest
	p.begin(p.now)
	if want := []int{50}; !slices.Equal(p.percents, want) {
		t.Errorf("when it is elected it set %v, want %v", p.percents, want)
	}
	p.live = 240 * mebibyte
	for range int(firstTime/interval) - 1 {
		p.makes(rest, interval)
	}
	if want := []int{50, 40}; !slices.Equal(p.percents, want) {
		t.Errorf("while it is new it set %v, want %v: no less because little is made", p.percents, want)
	}
	p.makes(rest, interval)
	if want := []int{50, 40, atRest}; !slices.Equal(p.percents, want) {
		t.Errorf("after that it set %v, want %v", p.percents, want)
	}
}

// Sudden work is noticed by the collections that it brings: looks would let it go on for seconds.
func TestSuddenWorkMayMakeMoreGarbageAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		percent int
		apart   time.Duration
		count   int
		want    []int
	}{
		"two scrapes at a time":             {atRest, suddenly / 100, 4, nil},
		"a collection now and then":         {atRest, suddenly / 4, 20, nil},
		"collections one after the other":   {atRest, suddenly / 8, collections, []int{50}},
		"so many once there is work anyway": {32, suddenly / 8, 20, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProgram(192 * mebibyte)
			p.percent = c.percent
			for range c.count {
				p.now = p.now.Add(c.apart)
				p.collect(p.now)
			}
			if !slices.Equal(p.percents, c.want) {
				t.Errorf("it set %v, want %v", p.percents, c.want)
			}
		})
	}
}

// After a change of the resolvers all services have a pass, for half a minute or more, and make nothing that stays.
func TestALongBacklogMayMakeMoreGarbage(t *testing.T) {
	p := newProgram(192 * mebibyte)
	p.percent = atRest
	var left int
	p.Backlog(func() int { return left })
	p.Backlog(func() int { return 1 })
	for _, step := range []struct {
		left, percent int
	}{{0, atRest}, {longBacklog - 2, atRest}, {9999, 50}, {5000, 50}, {longBacklog - 1, 50}, {10, atRest}} {
		left = step.left
		if p.makes(rest, interval); p.percent != step.percent {
			t.Errorf("%d%% with %d passes left, want %d%%", p.percent, left, step.percent)
		}
	}
	p.begin(p.now)
	left = 9999
	p.makes(rest, interval)
	left = 0
	if p.makes(rest, firstTime-2*interval); p.percent != 50 {
		t.Errorf("a backlog ends the time of a new leader: %d%%, want 50%%", p.percent)
	}
}

func TestCollectionsAreTold(*testing.T) {
	seen := collected()
	for range 3 {
		for len(seen) == 0 {
			runtime.GC() // it may have been made in the last one, and is found by the next
		}
		<-seen
	}
}

// The replica is told that it has been elected while it runs.
func TestAnElectionIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, elected := newProgram(192*mebibyte), make(chan struct{})
		p.percent, p.elected = atRest, elected
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- p.Start(ctx) }()
		synctest.Wait()
		close(elected)
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil || !slices.Equal(p.percents, []int{50, atWork}) {
			t.Errorf("it set %v (%v), want 50 at once, and %d in the end", p.percents, err, atWork)
		}
	})
}

// A large heap has no more garbage than a small one, but for what it has at rest.
func TestGarbageIsBounded(t *testing.T) {
	for live, want := range map[uint64]int{10: 100, 48: 100, 96: 50, 150: 32, 1000: atRest} {
		p := newProgram(live * mebibyte)
		p.percent = atRest
		for range busy {
			p.makes(live*mebibyte, interval)
		}
		if p.percent != want {
			t.Errorf("%d %% while %d MiB live, want %d %%", p.percent, live, want)
		}
	}
}

// Who rests and works in turn gives memory back once a minute, too: each time costs a collection.
func TestMemoryIsGivenBackOnceAMinute(t *testing.T) {
	p := newProgram(10 * mebibyte)
	for i := range int(10 * time.Minute / interval) {
		var made uint64
		if i%(calm+3) < busy {
			made = work
		}
		p.makes(made, interval)
	}
	if p.gave < 9 || p.gave > 10 {
		t.Errorf("memory is given back %d times in ten minutes", p.gave)
	}
}

func TestTheHeapIsRead(t *testing.T) {
	before, _ := heap()
	held := make([]byte, mebibyte)
	runtime.GC()
	after, lives := heap()
	if after-before < mebibyte || lives < mebibyte {
		t.Errorf("%d bytes were made, and %d live", after-before, lives)
	}
	runtime.KeepAlive(held)
}

func TestWhoSetsItHasIt(t *testing.T) {
	t.Setenv("GOGC", "70")
	if New(nil) != nil {
		t.Error("it is set in spite of GOGC")
	}
	t.Setenv("GOGC", "")
	if New(nil) == nil {
		t.Error("nothing sets it without GOGC")
	}
}

// While scrapes are answered there may be more garbage, by whatever there may be else.
func TestThereMayBeMoreGarbageDuringAScrape(t *testing.T) {
	p := newProgram(192 * mebibyte)
	p.percent = atRest
	p.PutOff(func() {
		p.PutOff(func() {})
		p.begin(p.now)
	})
	if want := []int{atRest + putOff, 50 + putOff, 50}; !slices.Equal(p.percents, want) {
		t.Errorf("it set %v, want %v", p.percents, want)
	}
	called := false
	(*Tuner)(nil).PutOff(func() { called = true })
	if !called {
		t.Error("a nil Tuner doesn't do it")
	}
}

func TestAScrapeBringsNoCollection(t *testing.T) {
	tuner := &Tuner{set: func(percent int) { debug.SetGCPercent(percent) }, percent: atRest}
	defer debug.SetGCPercent(debug.SetGCPercent(atRest))
	lives := make([][]byte, 64)
	for i := range lives {
		lives[i] = make([]byte, mebibyte)
	}
	collections := func(do func()) uint32 {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		do()
		runtime.ReadMemStats(&after)
		return after.NumGC - before.NumGC
	}
	scrape := func() {
		for range 90 { // an eleventh of what lives
			lives[0] = make([]byte, mebibyte/16)
		}
	}
	if got := collections(scrape); got == 0 {
		t.Fatal("without, it brings none either")
	}
	if got := collections(func() { tuner.PutOff(scrape) }); got != 0 {
		t.Errorf("it brings %d", got)
	}
	runtime.KeepAlive(lives)
}
