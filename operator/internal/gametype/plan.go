package gametype

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/operator/internal/places"
	"dormouse.dev/dormouse/operator/internal/requeue"
)

// plan is what a pass is to do with a GameType's Fleets.
type plan struct {
	// current is the Fleet of the template; nil where there is none.
	current *fleet
	// number is the current revision's number.
	number int64
	// create creates the current revision's Fleet, with first replicas, and with these places
	// where they have some.
	create      bool
	first       int32
	firstPlaces string
	// change are the Fleets that are to be changed.
	change []change
	// force are the Fleets whose last Servers' time is over.
	force []*fleet
	// remove are the Fleets beyond the history.
	remove []*fleet
	// done is set where all Servers that take players are of the current revision, and there
	// are as many as desired.
	done bool
	// undone is set where the current revision is the one that UndoToAnnotation names, and
	// undoing describes the effect of that annotation.
	undone  bool
	undoing string
	// why explains in a sentence what this step is for, or what the next one waits for; empty
	// where nothing is to be done.
	why          string
	requeueAfter requeue.After
}

// change is a Fleet's desired state.
type change struct {
	fleet         *fleet
	replicas      int32
	number        int64
	retiringSince time.Time
	// places are those of its Servers, where they have some, and trial is TrialAnnotation's
	// value.
	places, trial string
}

// bounds are the bounds of an update.
type bounds struct {
	replicas int32
	// most is how many Servers may take players or start at a time, and least is how many must
	// be Ready before the update takes any away.
	most, least int32
}

// makePlan decides about a GameType's Fleets. The current one has the GameType's
// template, all others are old. known is the highest number that a revision is
// known to have had.
//
// Gradual:
//
//  1. The current Fleet gets more Servers as long as all Fleets' Servers together
//     are at most replicas and the surge. Old ones count until they are drained,
//     deleted, or, where they are Allocated, told to go.
//  2. Old Fleets lose what isn't Ready, as long as those that remain and the
//     current Ready ones could be enough: a Fleet that has none Ready first, and
//     of these one that never had.
//  3. Then they lose Ready ones, the oldest revision first, as long as enough are
//     Ready with what remains. Nothing but Ready Servers of the current revision,
//     or a smaller number asked for, makes room for that.
//  4. Should fewer be asked for than there are, the current Fleet loses what isn't
//     Ready before old ones lose what is.
//
// So there are always enough Servers of old revisions while those of the current
// one don't get Ready, and no third revision needs a rule of its own: the second
// is old then, and going back makes the first one current again.
//
// Recreate: old Fleets lose all, and the current one gets its Servers when none is
// left that takes players.
//
//  5. As long as the current revision has never had a Ready Server, what is missing
//     goes to the newest old one that has, and the current one gets what may be
//     beside it. So nothing but a Ready Server of its own makes a revision the one
//     that a wake or a scale-up brings.
//
// Which Server of a Fleet goes, and that occupied ones drain, is the Fleet's to
// decide. Servers with storage have places, see assign.
func makePlan(now time.Time, spec *v1alpha1.GameTypeSpec, fleets []fleet, at occupants, lastNumber int64) plan {
	var p plan
	// Which is the current Fleet? The others that aren't being deleted are old, the oldest first.
	var old []*fleet
	for i := range fleets {
		f := &fleets[i]
		switch {
		case f.deleting:
		case !f.current:
			old = append(old, f)
		case p.current == nil:
			p.current = f
		case byNumber(f, p.current) > 0:
			old = append(old, p.current)
			p.current = f
		default:
			old = append(old, f)
		}
	}
	slices.SortFunc(old, byNumber)
	// The current revision's number is higher than any other's.
	highest := int64(0)
	if len(old) > 0 {
		highest = max(0, old[len(old)-1].number)
	}
	if p.current != nil && p.current.number > highest {
		p.number = p.current.number
	} else {
		p.number = max(highest, lastNumber) + 1
	}
	current := p.current
	if current == nil {
		current = &fleet{current: true, observed: true}
		p.create = true
	}

	// How many Servers is each to have, or which places?
	replicas := scaleOf(spec).Replicas
	want := replicas
	var left []int32
	var trial, wantPlaces, because string
	var leftPlaces []string
	switch {
	case len(spec.Template.Spec.Storage) > 0:
		b := placeBounds(spec, replicas)
		var ends time.Duration
		trial, ends = trialOf(now, spec, current, old)
		p.requeueAfter.AtMost(ends)
		mine, others := assign(b, trial, current, old, at)
		because = whyPlaces(b, trial, current, old, mine, at)
		if trial == "" && !current.everReady && at.has(current) && lastEverReady(old) >= 0 {
			trial = now.UTC().Format(time.RFC3339)
		}
		want, wantPlaces = int32(len(mine)), places.Format(mine) //nolint:gosec // it is bounded
		for _, list := range others {
			left, leftPlaces = append(left, int32(len(list))), append(leftPlaces, places.Format(list)) //nolint:gosec // it is bounded
		}
	case len(old) == 0: // all are the current one's
	case spec.Update.Strategy == v1alpha1.UpdateRecreate:
		want, left = recreate(replicas, current, old)
	default:
		want, left = gradual(boundsOf(spec), current, old)
	}
	if leftPlaces == nil {
		leftPlaces = make([]string, len(old))
	}

	// What changes, and which old Fleets' time is over?
	if p.create {
		p.first, p.firstPlaces = want, wantPlaces
	} else {
		p.bring(change{fleet: current, replicas: want, number: p.number, places: wantPlaces, trial: trial})
	}
	remaining := int32(0)
	for i, f := range old {
		c := change{fleet: f, replicas: left[i], number: f.number, places: leftPlaces[i]}
		switch {
		case c.places != f.places && c.replicas < f.desired:
			c.retiringSince = now
		case c.replicas > 0 && c.places != "" && (f.draining > 0 || !f.observed):
			c.retiringSince = f.retiringSince
		case c.replicas == 0:
			c.retiringSince = f.retiringSince
			if c.retiringSince.IsZero() && !f.empty() {
				c.retiringSince = now
			}
		}
		p.bring(c)
		p.retire(now, spec, c)
		remaining += f.counted()
	}

	// What is it for?
	p.why = cmp.Or(because, why(replicas, current, old, want, left))
	p.done = !p.create && current.desired == replicas && want == replicas && remaining == 0
	if len(old) > 0 {
		p.forget(spec, old)
	}
	switch {
	case p.why != "":
	case len(p.force) > 0:
		p.why = "The time of old Servers is over."
	case len(p.remove) > 0:
		p.why = "There are more empty Fleets than are to be kept."
	}
	return p
}

func boundsOf(spec *v1alpha1.GameTypeSpec) bounds {
	b := bounds{replicas: scaleOf(spec).Replicas}
	if len(spec.Template.Spec.Storage) > 0 {
		return placeBounds(spec, b.replicas)
	}
	surge := scaled(spec.Update.MaxSurge, "25%", b.replicas, true)
	fewer := scaled(spec.Update.MaxUnavailable, "0", b.replicas, false)
	if surge == 0 && fewer == 0 {
		fewer = 1 // a percentage of few
	}
	b.most, b.least = b.replicas+surge, max(0, b.replicas-fewer)
	return b
}

// scaled is a number, or a percentage of another one.
func scaled(value *intstr.IntOrString, otherwise string, of int32, up bool) int32 {
	if value == nil {
		value = new(intstr.Parse(otherwise))
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(value, int(of), up)
	if err != nil || n < 0 {
		return 0 // the API server refuses that
	}
	return int32(min(n, maxReplicas)) //nolint:gosec // it is bounded
}

// gradual returns how many Servers the current Fleet and each old one are to have.
func gradual(b bounds, current *fleet, old []*fleet) (int32, []int32) {
	want := min(current.desired, b.replicas)
	fresh := min(current.sure(), want)
	left := make([]int32, len(old))
	if b.replicas == 0 {
		return 0, left
	}
	var asked, ready, counted int32
	for i, f := range old {
		left[i] = f.desired
		asked += f.desired
		ready += f.sure()
		counted += f.counted()
	}
	spare := max(0, asked+fresh-b.least)
	spare -= take(left, old, spare, func(f *fleet) bool { return f.ready == 0 && !f.everReady }, (*fleet).unready)
	spare -= take(left, old, spare, func(f *fleet) bool { return f.ready == 0 && f.everReady }, (*fleet).unready)
	spare -= take(left, old, spare, func(f *fleet) bool { return f.ready > 0 }, (*fleet).unready)
	spare = min(spare, max(0, ready+fresh-b.least))
	take(left, old, spare, func(*fleet) bool { return true }, (*fleet).sure)

	// Nothing but a revision that has had a Ready Server takes the place of what is missing.
	share := b.replicas
	if last := lastEverReady(old); last >= 0 && !current.everReady {
		share = b.most - b.least
		want = min(want, share)
		missing := min(b.least-sum(left)-fresh, b.most-max(want, current.desired)-counted)
		if missing > 0 && !slices.ContainsFunc(old, unobserved) {
			left[last] += missing
			counted += missing
		}
	}

	if excess := want + sum(left) - b.most; excess > 0 && current.observed {
		want -= min(excess, want-fresh)
	}
	room := b.most - current.desired - counted
	share = min(share, b.replicas)
	if want < share && room > 0 && !slices.ContainsFunc(old, unobserved) {
		want += min(room, share-want)
	}
	return want, left
}

// take takes at most count Servers from those of the old Fleets that pass, at most as many from
// each as of returns, and returns how many it took.
func take(left []int32, old []*fleet, count int32, pass func(*fleet) bool, of func(*fleet) int32) int32 {
	taken := int32(0)
	for i, f := range old {
		if !pass(f) {
			continue
		}
		n := max(0, min(count-taken, of(f), left[i]))
		left[i] -= n
		taken += n
	}
	return taken
}

// recreate returns how many Servers the current Fleet and each old one are to have.
func recreate(replicas int32, current *fleet, old []*fleet) (int32, []int32) {
	left := make([]int32, len(old))
	if slices.ContainsFunc(old, func(f *fleet) bool { return f.counted() > 0 || unobserved(f) }) {
		return min(current.desired, replicas), left
	}
	return replicas, left
}

// unobserved reports whether a Fleet hasn't yet acted on its spec: its status is about an
// earlier one, which may have asked for more.
func unobserved(f *fleet) bool { return !f.observed }

// why explains a step.
func why(replicas int32, current *fleet, old []*fleet, want int32, left []int32) string {
	var asked, stay, counted int32
	for i, f := range old {
		asked += f.desired
		stay += left[i]
		counted += f.counted()
	}
	more, fewer := want > current.desired, stay < asked
	switch {
	case replicas == 0 && (want < current.desired || fewer):
		return "No Servers are asked for."
	case more && fewer:
		return "There is room for more new Servers, and no need for some of the old ones."
	case more:
		return "There is room for more Servers of the newest revision."
	case want < current.desired:
		return "There are more Servers than there is room for."
	case fewer:
		return "There is no need for some of the old Servers."
	case counted > 0 && slices.ContainsFunc(old, unobserved), counted > asked:
		return "Old Servers are about to go."
	case counted > 0:
		return "Old Servers wait for new ones to get Ready."
	default:
		return ""
	}
}

// portsRetry is when to look again whether the private Service has changed ports.
const portsRetry = 50 * time.Millisecond

// postpone leaves the current revision's next Servers to a later pass.
func (p *plan) postpone() {
	p.create = false
	p.change = slices.DeleteFunc(p.change, func(c change) bool { return c.fleet == p.current && c.replicas > c.fleet.desired })
	p.requeueAfter.AtMost(portsRetry)
}

// bring adds the change of a Fleet that isn't as desired.
func (p *plan) bring(c change) {
	f := c.fleet
	if f.desired != c.replicas || f.number != c.number || f.unlike || !f.retiringSince.Equal(c.retiringSince) ||
		f.trial != c.trial || c.places != "" && f.places != c.places {
		p.change = append(p.change, c)
	}
}

// retire ends the rest of an old Fleet when its time is over.
func (p *plan) retire(now time.Time, spec *v1alpha1.GameTypeSpec, c change) {
	after := spec.Update.RetireAfter
	if after == nil || after.Duration <= 0 || c.retiringSince.IsZero() || c.fleet.empty() {
		return
	}
	if left := c.retiringSince.Add(after.Duration).Sub(now); left > 0 {
		p.requeueAfter.AtMost(left)
		return
	}
	p.force = append(p.force, c.fleet)
}

// forget deletes the oldest of the empty old Fleets beyond the history.
func (p *plan) forget(spec *v1alpha1.GameTypeSpec, old []*fleet) {
	limit := historyLimit
	if spec.RevisionHistoryLimit != nil {
		limit = int(*spec.RevisionHistoryLimit)
	}
	// A wake may need the last one that has had a Ready Server.
	var last *fleet
	if i := lastEverReady(old); i >= 0 && (p.current == nil || !p.current.everReady) {
		last = old[i]
	}
	history := slices.DeleteFunc(slices.Clone(old), func(f *fleet) bool { return !f.empty() || f == last })
	p.remove = history[:max(0, len(history)-limit)]
}

// writes reports whether the plan changes any Fleet.
func (p *plan) writes() bool {
	return p.create || len(p.change)+len(p.remove)+len(p.force) > 0
}

const (
	// maxReplicas is the most that spec.replicas can be.
	maxReplicas = 10000
	// historyLimit is how many empty Fleets are kept by default.
	historyLimit = 5
)

// Replicas is how many Servers a GameType is to have now; 0 while it sleeps.
func Replicas(spec *v1alpha1.GameTypeSpec) int32 { return scaleOf(spec).Replicas }

// AutoscaledReplicas is the same for a GameType that a GameAutoscaler scales.
func AutoscaledReplicas(spec *v1alpha1.GameTypeSpec) int32 {
	return autoscaled(spec, scaleOf(spec)).Replicas
}

func sum(list []int32) int32 {
	total := int32(0)
	for _, n := range list {
		total += n
	}
	return total
}
