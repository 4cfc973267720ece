package report

import (
	"hash/fnv"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/internal/reportapi"
	"dormouse.dev/dormouse/operator/internal/kit"
)

// lateTime is how long a report of a process that has ended may still be on its way. A process
// that wasn't announced here is accepted after that at the latest.
const lateTime = 2 * time.Second

// Urgent writes of a Server beyond this rate are as seldom as others: a sidecar that changes
// its mind without end doesn't keep the API server busy.
const (
	urgentRate  = 1
	urgentBurst = 5
)

// table has the last report of each Server that reports to this replica. There
// are no more entries than Servers in the cache.
type table struct {
	// turns are for those who write Servers' statuses, see turn.
	turns [256]sync.Mutex

	mu      sync.Mutex
	entries map[types.UID]*entry // by the Server's UID
}

// entry is the memory of one Server.
type entry struct {
	server types.NamespacedName
	last   *said // never changed once it is here; nil before the first
	// announced is the instance that last started here, until it reports.
	announced string
	// newcomer is an instance that didn't count as newer than that of last, which has been
	// silent since then, and since is when it first came.
	newcomer string
	since    time.Time
	waiter   *waiter
	// came is set once a report of a sidecar that came to this replica was held.
	came bool
	// answered is the last answer that was made for the sidecar.
	answered answered
	// looks are under way, by their words.
	looks map[string]*look
	// written is the Server after the last write here of reports, or of its controller that changes
	// a condition, until the cache has that; nil when nothing was written since. It is never changed.
	written *v1alpha1.Server
	write   writing
}

// answered is an answer's version, and what the answer was made from.
type answered struct {
	from    sources
	version string
}

// sources are the versions of an answer's objects, and the look.
type sources struct{ server, pod, gameType, look string }

// writing is the writer's memory of a Server. Only the one worker that has the Server uses it.
type writing struct {
	// conflict is the resource version that a write failed with.
	conflict string
	// seen is when there was first something to write that isn't written yet.
	seen time.Time
	at   time.Time
	// urgent bounds writes that can't wait.
	urgent *rate.Limiter
}

func newTable() *table { return &table{entries: map[types.UID]*entry{}} }

// take remembers a report, ends the Server's previous report if that is held, and returns the
// waiter with which this one is held; nil for a report that is older than one that was
// accepted.
func (t *table) take(uid types.UID, server types.NamespacedName, s *said) *waiter {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entry(uid, server)
	if !e.accepts(s) {
		return nil
	}
	e.reply(s)
	s.since, s.from, s.leavingFrom = s.at, sequence(s.report), sequence(s.report)
	if last := e.last; last != nil {
		e.came = e.came && s.at.Sub(last.at) <= reportapi.FreshFor // else it comes back from another replica
		if last.podUID == s.podUID && last.report.Game.State == s.report.Game.State {
			s.since = last.since
		}
		if last.podUID == s.podUID && last.report.Instance == s.report.Instance && s.from-sequence(last.report) <= 1 {
			s.from = last.from
			if last.leaving() == s.leaving() {
				s.leavingFrom = last.leavingFrom
			}
		}
		if last.podUID != s.podUID || last.report.Instance != s.report.Instance {
			e.announced = ""
		}
	}
	e.last, e.newcomer = s, ""
	if e.waiter != nil {
		e.waiter.wake(true)
	}
	e.waiter = newWaiter()
	return e.waiter
}

// entry is a Server's entry, which is made where there is none. The lock is held.
func (t *table) entry(uid types.UID, server types.NamespacedName) *entry {
	e := t.entries[uid]
	if e == nil {
		e = &entry{server: server, write: writing{urgent: rate.NewLimiter(urgentRate, urgentBurst)}}
		t.entries[uid] = e
	}
	return e
}

// accepts reports whether a report is newer than the known one. A report of another instance
// is, if the instance announced itself here, or if the status has come to name it since. If it
// announced itself to another replica, only further reports distinguish it from an instance
// that has ended.
func (e *entry) accepts(s *said) bool {
	switch {
	case e.last == nil || e.last.podUID != s.podUID:
		return true
	case e.last.report.Instance == s.report.Instance:
		return s.report.Sequence >= e.last.report.Sequence
	case e.announced == s.report.Instance, s.base == s.report.Instance && e.last.base != s.base:
		return true
	case e.newcomer != s.report.Instance:
		e.newcomer, e.since = s.report.Instance, s.at
		return false
	default:
		return s.at.Sub(e.since) >= lateTime
	}
}

// announce notes that a sidecar starts as a new instance, whose reports are newer than the last
// one, and ends the previous instance's held report.
func (t *table) announce(uid types.UID, instance string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[uid]
	if e == nil {
		return
	}
	e.announced = instance
	if e.waiter != nil {
		e.waiter.wake(true)
		e.waiter = nil
	}
}

// comes notes that a report is held, and reports whether it is the first one since its sidecar came to this
// replica.
func (t *table) comes(uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[uid]
	if e == nil || e.came {
		return false
	}
	e.came = true
	return true
}

// leave notes that a report is no longer held.
func (t *table) leave(uid types.UID, w *waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[uid]; e != nil && e.waiter == w {
		e.waiter = nil
	}
}

// notify notifies a Server's held report that something changed.
func (t *table) notify(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[uid]; e != nil && e.waiter != nil {
		e.waiter.wake(false)
	}
}

// forget drops the entry of a Server that is gone. Its held report is notified, and finds no
// Server.
func (t *table) forget(uid types.UID) {
	t.notify(uid)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.entries, uid)
}

// noteAnswer notes an answer for a sidecar that has reported here.
func (t *table) noteAnswer(uid types.UID, a answered) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[uid]; e != nil {
		e.answered = a
	}
}

// last is a Server's last report; nil when there is none.
func (t *table) last(uid types.UID) *said {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entries[uid]; e != nil {
		return e.last
	}
	return nil
}

// pending returns a Server's entry, for the worker that has it, with its last report.
func (t *table) pending(uid types.UID) (*entry, *said) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[uid]
	if e == nil || e.last == nil {
		return nil, nil
	}
	return e, e.last
}

// Turn waits until nobody else at this replica writes a Server's status, and returns what ends the
// turn. Two who write at once from one version would have one refused. A few Servers share a turn.
func (t *table) Turn(uid types.UID) (end func()) {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(uid)) // a hash accepts any input
	m := &t.turns[hash.Sum32()%uint32(len(t.turns))]
	m.Lock()
	return m.Unlock
}

// Wrote remembers a Server after a write at this replica, unless a later one is remembered. It must
// not be changed any more.
func (t *table) Wrote(server *v1alpha1.Server) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[server.UID]
	if e == nil || e.written != nil && !kit.Later(server, e.written) {
		return
	}
	server.ManagedFields = nil
	e.written = server
}

// Latest is a Server as the cache has it, or as the last write at this replica left it if the cache
// doesn't have that yet. It must not be changed.
func (t *table) Latest(cached *v1alpha1.Server) *v1alpha1.Server {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[cached.UID]
	if e == nil || e.written == nil {
		return cached
	}
	if !kit.Later(e.written, cached) {
		e.written = nil
		return cached
	}
	return e.written
}

// WroteAfter reports whether something later than a Server was written at this replica, which the
// cache may not have yet.
func (t *table) WroteAfter(server *v1alpha1.Server) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[server.UID]
	return e != nil && e.written != nil && kit.Later(e.written, server)
}

// recent is a Server's last report in the form for other replicas; ok is false where there is
// none that still counts.
func (t *table) recent(now time.Time, uid types.UID) (r reportapi.RecentReport, ok bool) {
	s := t.last(uid)
	if s == nil {
		return r, false
	}
	age := now.Sub(s.at)
	return reportapi.RecentReport{
		PodUID: s.podUID, Instance: s.report.Instance, Sequence: s.report.Sequence,
		AgeMilliseconds: max(age, 0).Milliseconds(), Busy: s.busy(),
	}, age <= reportapi.FreshFor
}
