package resolvers

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dormouse.dev/dormouse/internal/informerapi"
)

// Thousands that are asked about one after the other are few questions, each of them about those that follow, too.
// Its answer is as old as one about all may be.
func TestServicesInTurnShareAQuestion(t *testing.T) {
	p := &pod{more: true}
	o, host := newObserver(t, p)
	none := func() []string { return nil }
	var follow []string
	for i := range 2 * MaxAhead {
		follow = append(follow, fmt.Sprintf("es-%d", i+2))
	}
	first := o.ViewInTurn(t.Context(), host, "es-1", func() []string { return follow })
	if first.Err != nil || first.Routes["es-1"].Phase != "Asleep" || first.Sessions["es-1"].Sessions != 3 || first.Routes["es-2"].Phase != "Awake" {
		t.Errorf("view = %+v, want one with those that follow", first)
	}
	for _, uid := range []string{"es-2", "es-3", "es-1"} {
		o.pods[host].ahead.sent = time.Now() // however slow the machine is
		if v := o.ViewInTurn(t.Context(), host, uid, none); !v.Asked.Equal(first.Asked) {
			t.Errorf("the view for %s is of %s, want the one of %s", uid, v.Asked, first.Asked)
		}
	}
	if v := o.View(t.Context(), host, "es-2"); !v.Asked.After(first.Asked) || len(v.Routes) != 1 {
		t.Errorf("who waits for it gets %+v, want one that is asked after the call", v)
	}
	if v := o.ViewInTurn(t.Context(), host, fmt.Sprintf("es-%d", MaxAhead+2), none); !v.Asked.After(first.Asked) {
		t.Errorf("the view of one that wasn't asked about is of %s", v.Asked)
	}
	o.pods[host].ahead.sent = time.Now().Add(-maxAge)
	if v := o.ViewInTurn(t.Context(), host, "es-2", none); !v.Asked.After(first.Asked) {
		t.Errorf("view of %s, want a new one: the last one is too old", v.Asked)
	}
	var about []int
	for _, q := range p.questions(t) {
		about = append(about, len(strings.Split(q, "%2C")))
	}
	if diff := cmp.Diff([]int{1 + MaxAhead, 1, 1, 1}, about); diff != "" {
		t.Errorf("how many services each question is about (-want +got):\n%s", diff)
	}
}

// Services that have their turns at the same time share the question that is under way. A question that others
// have begun isn't made longer than it may be.
func TestServicesInTurnShareAQuestionThatIsUnderWay(t *testing.T) {
	o, host, p, asking := held(t)
	o.most = 2
	var views [4]View
	view := func(i int, uid string, following ...string) {
		asking.Go(func() { views[i] = o.ViewInTurn(t.Context(), host, uid, func() []string { return following }) })
	}
	view(0, "es-1", "es-2")
	o.until(t, "two questions are under way", func() bool { return o.pods[host].asking == 2 && o.pods[host].next == nil })
	o.mu.Lock()
	o.pods[host].ahead.sent = time.Now() // however slow the machine is
	o.mu.Unlock()
	view(1, "es-2", "es-3")
	view(2, "es-3")
	o.until(t, "one that isn't among them waits", func() bool { return o.pods[host].next != nil })
	view(3, "es-4", "es-5")
	o.until(t, "another one has joined that", func() bool { return len(o.pods[host].next.uids) > 1 })
	close(p.hold)
	asking.Wait()
	if views[0].Err != nil || !views[1].Asked.Equal(views[0].Asked) {
		t.Errorf("the views are of %s and %s (%v), want one for both", views[0].Asked, views[1].Asked, views[0].Err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// They come in any order.
	if len(p.asked) != 3 || !slices.Contains(p.asked, "uids=es-3%2Ces-4") {
		t.Errorf("questions = %q, want one about es-3 and es-4 alone", p.asked)
	}
}

// A question that failed is nobody's answer once the pod may be asked again, whether it was sent or not.
func TestAQuestionThatFailedIsNotSharedByThoseInTurn(t *testing.T) {
	o, host, p, asking := held(t)
	coming := func() []string { return []string{"es-2"} }
	asking.Go(func() {
		if v := o.ViewInTurn(t.Context(), host, "es-1", coming); v.Err == nil {
			t.Errorf("view = %+v, want an error", v)
		}
	})
	o.until(t, "one in turn waits", func() bool { return o.pods[host].next != nil })
	p.fails.Store(true)
	close(p.hold)
	asking.Wait()
	p.fails.Store(false)
	o.pods[host].restUntil = time.Now()
	if v := o.ViewInTurn(t.Context(), host, "es-2", coming); v.Err != nil {
		t.Errorf("view = %+v, want one of the pod that answers again", v)
	}
}

// An answer that took long is too old for those that come then.
func TestAnAnswerThatTookLongIsNotSharedByThoseInTurn(t *testing.T) {
	o, host, p, asking := held(t)
	o.most = 2
	coming := func() []string { return []string{"es-2"} }
	var slow View
	asking.Go(func() { slow = o.ViewInTurn(t.Context(), host, "es-1", coming) })
	o.until(t, "two questions are under way", func() bool { return o.pods[host].asking == 2 && o.pods[host].next == nil })
	o.mu.Lock()
	o.pods[host].ahead.sent = time.Now().Add(-maxAge)
	o.mu.Unlock()
	var late View
	asking.Go(func() { late = o.ViewInTurn(t.Context(), host, "es-2", coming) })
	o.until(t, "one that comes then waits for the next one", func() bool { return o.pods[host].next != nil })
	close(p.hold)
	asking.Wait()
	if slow.Err != nil || !late.Asked.After(slow.Asked) {
		t.Errorf("the views are of %s and %s (%v), want the second to be newer", slow.Asked, late.Asked, slow.Err)
	}
}

// An older pod's answer about all services isn't kept, either.
func TestAnOlderPodsAnswerIsNotKeptForThoseInTurn(t *testing.T) {
	o, host := newObserver(t, &pod{old: true, more: true})
	if v := o.ViewInTurn(t.Context(), host, "es-1", func() []string { return []string{"es-2"} }); len(v.Routes) < 3 {
		t.Errorf("view = %+v, want that of all", v)
	}
	if is := o.pods[host]; !is.alone || is.ahead != nil {
		t.Errorf("it is asked about each alone: %v, and %+v is kept", is.alone, is.ahead)
	}
}

// An answer about all services isn't kept for those whose turn comes.
func TestAnAnswerAboutAllIsNotKeptForThoseInTurn(t *testing.T) {
	o, host, p, asking := held(t)
	var many []string
	for i := range informerapi.MaxUIDs {
		many = append(many, fmt.Sprintf("other-%d", i))
	}
	asking.Go(func() { o.ViewInTurn(t.Context(), host, "es-1", func() []string { return []string{"es-2"} }) })
	o.until(t, "the first has joined", func() bool { return o.pods[host].next != nil })
	asking.Go(func() { o.View(t.Context(), host, many...) })
	o.until(t, "the second has joined", func() bool { return o.pods[host].next.all })
	close(p.hold)
	asking.Wait()
	if o.pods[host].ahead != nil {
		t.Error("it is kept")
	}
}
