package resolvers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"dormouse.dev/dormouse/internal/informerapi"
)

// A pass that comes alone asks about its service only: with thousands of services the answer
// about all of them is megabytes.
func TestFewWhoAskAskAboutTheirServiceAlone(t *testing.T) {
	p := &pod{}
	o, host := newObserver(t, p)
	for range few {
		if v := o.ViewFor(t.Context(), host, "es-2", time.Minute); v.Err != nil || len(v.Routes) != 1 || v.Routes["es-2"].Phase != "Awake" {
			t.Fatalf("view = %+v, want that of es-2 alone", v)
		}
	}
	if n := p.all.Load(); n != 0 {
		t.Errorf("the pod was asked about all services %d times, want never", n)
	}
}

func TestManyWhoAskShareAnAnswerAboutAllServices(t *testing.T) {
	p := &pod{}
	o, host := newObserver(t, p)
	for i := range 50 * few {
		v := o.ViewFor(t.Context(), host, fmt.Sprintf("other-%d", i), time.Minute)
		if all := len(v.Routes) == 2; v.Err != nil || all != (i >= few) {
			t.Fatalf("view %d = %+v, want one about all services from the %dth on", i, v, few)
		}
	}
	if all, asked := p.all.Load(), p.asked.Load(); all != 1 || asked != few+1 {
		t.Errorf("the pod was asked %d times and about all services %d times, want %d and once", asked, all, few+1)
	}
	// That answer serves those who ask later, as long as it is new enough.
	o.asking = map[string]asked{}
	if v := o.ViewFor(t.Context(), host, "es-1", time.Minute); len(v.Routes) != 2 {
		t.Errorf("view = %+v, want the one about all services", v)
	}
	if v := o.ViewFor(t.Context(), host, "es-1", time.Nanosecond); len(v.Routes) != 1 {
		t.Errorf("view = %+v, want a new one about es-1", v)
	}
}

// What the pod said of one service alone is newer than its last answer about all: a pass that
// took the older one would take the pod's endpoint away that the pass before it had made.
func TestAServicesReportsDontGoBackInTime(t *testing.T) {
	for name, others := range map[string]int{"few ask": 0, "many ask": 2 * few} {
		t.Run(name, func(t *testing.T) {
			p := &pod{}
			o, host := newObserver(t, p)
			o.View(t.Context(), host, 0)
			seen := o.ViewOf(t.Context(), host, "es-1").Asked
			for range others {
				o.ViewFor(t.Context(), host, "es-2", period)
			}
			if v := o.ViewFor(t.Context(), host, "es-1", period); v.Asked.Before(seen) {
				t.Errorf("the report is %s older than the last one", seen.Sub(v.Asked))
			}
		})
	}
}

// A service that was asked about alone some time ago takes an answer about all again, so that
// thousands that wake together don't ask one by one from then on.
func TestManyThatWereAskedAboutAloneShareAnAnswerAgain(t *testing.T) {
	p := &pod{}
	o, host := newObserver(t, p)
	o.ViewOf(t.Context(), host, "es-1")
	a := o.asking[host]
	a.alone["es-1"] = a.alone["es-1"].Add(-period)
	a.times = few
	o.asking[host] = a
	if v := o.ViewFor(t.Context(), host, "es-1", period); len(v.Routes) != 2 {
		t.Errorf("view = %+v, want the one about all services", v)
	}
}

func TestAPodThatAnswersAboutOneServiceIsKnownToAnswer(t *testing.T) {
	p := &pod{}
	o, host := newObserver(t, p)
	first := o.ViewFor(t.Context(), host, "es-1", time.Nanosecond)
	if second := o.ViewFor(t.Context(), host, "es-1", time.Nanosecond); !second.FirstAsked.Equal(first.FirstAsked) {
		t.Errorf("first asked at %s, want %s", second.FirstAsked, first.FirstAsked)
	}
	p.broken.Store(true)
	last := o.lastView(host).Answered
	if v := o.ViewFor(t.Context(), host, "es-1", time.Nanosecond); v.Err == nil || !v.Answered.Equal(last) || last.IsZero() {
		t.Errorf("view of a failing pod = %+v, want an error, and an answer at %s", v, last)
	}
	p.broken.Store(false)
	o.views[host] = View{FirstAsked: first.FirstAsked, Answered: last, Err: o.views[host].Err, rest: maxRest} // its rest is over
	o.ViewFor(t.Context(), host, "es-1", time.Nanosecond)
	if v := o.lastView(host); v.Err != nil || v.rest != 0 {
		t.Errorf("a pod that answered counts as one that doesn't: %+v", v)
	}
}

// BenchmarkAView is what a report costs the operator and the pod, with 10,000 services.
func BenchmarkAView(b *testing.B) {
	var routes informerapi.RoutesResponse
	var sessions informerapi.SessionsResponse
	for i := range 10000 {
		routes.Routes = append(routes.Routes, informerapi.Route{
			UID: fmt.Sprintf("00000000-0000-0000-0000-%012d", i), Namespace: "games", Name: fmt.Sprintf("lobby-%d", i), Service: fmt.Sprintf("lobby-%d", i), Phase: "Asleep", PhaseSince: new(time.Unix(int64(i), 0)),
			Ports: []informerapi.RoutePort{{Name: "game", Protocol: "minecraft", Port: int32(10000 + i), Listening: true}},
		})
	}
	o, host := newObserver(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		one := r.URL.Query().Get("uid") != ""
		switch {
		case r.URL.Path == informerapi.SessionsPath:
			_ = json.NewEncoder(w).Encode(sessions)
		case one:
			_ = json.NewEncoder(w).Encode(informerapi.RoutesResponse{Routes: routes.Routes[:1]})
		default:
			_ = json.NewEncoder(w).Encode(routes)
		}
	}))
	b.Run("of all services", func(b *testing.B) {
		for b.Loop() {
			o.View(b.Context(), host, 0)
		}
	})
	b.Run("kept", func(b *testing.B) {
		live := func() float64 {
			runtime.GC()
			runtime.GC()
			var is runtime.MemStats
			runtime.ReadMemStats(&is)
			return float64(is.HeapAlloc)
		}
		for b.Loop() {
			o.Keep(nil)
			before := live()
			o.View(b.Context(), host, 0)
			b.ReportMetric((live()-before)/float64(len(routes.Routes)), "B/service")
		}
	})
	b.Run("of one service", func(b *testing.B) {
		for b.Loop() {
			o.ViewOf(b.Context(), host, routes.Routes[0].UID)
		}
	})
}

func TestOfARouteIsKeptWhatIsRead(t *testing.T) {
	since := time.Unix(1000, 0)
	got := routeOf(&informerapi.Route{
		UID: "es-1", Namespace: "games", Name: "lobby", Service: "lobby", Phase: "Asleep", PhaseSince: &since,
		Ports: []informerapi.RoutePort{
			{Name: "game", Protocol: "minecraft", Port: 10001, Listening: true}, {Name: "front", Port: 10002, Front: "games/front", Error: "it is taken"},
		},
	})
	want := Route{Phase: "Asleep", PhaseSince: &since, Ports: []Port{{Port: 10001, Listening: true}, {Port: 10002, Front: true, Error: "it is taken"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
}
