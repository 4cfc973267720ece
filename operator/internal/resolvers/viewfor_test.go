package resolvers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

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
	for range 50 * few {
		if v := o.ViewFor(t.Context(), host, "es-1", time.Minute); v.Routes["es-1"].Phase != "Asleep" {
			t.Fatalf("view = %+v, want one with es-1", v)
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
			UID: fmt.Sprintf("00000000-0000-0000-0000-%012d", i), Namespace: "games", Name: fmt.Sprintf("lobby-%d", i), Service: fmt.Sprintf("lobby-%d", i), Phase: "Asleep",
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
	b.Run("of one service", func(b *testing.B) {
		for b.Loop() {
			o.ViewOf(b.Context(), host, routes.Routes[0].UID)
		}
	})
}
