package pagetest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	restpage "dormouse.dev/dormouse/operator/internal/restapi/page"
	"dormouse.dev/dormouse/operator/internal/restapi/page/pagetest"
	"dormouse.dev/dormouse/test/env"
	"dormouse.dev/dormouse/test/page"
)

// TestThePageInChromium walks through the page as people do. DORMOUSE_PAGE_SHOTS is a directory for
// screenshots.
func TestThePageInChromium(t *testing.T) {
	err := env.InstallDebian(t.Context(), "chromium", page.Program, os.Stderr)
	if errors.Is(err, env.ErrNotInstalled) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, view := range page.Views {
		t.Run(view.Name, func(t *testing.T) {
			fake := town()
			site := httptest.NewServer(restpage.New(fake, restpage.Options{}))
			t.Cleanup(site.Close)
			t.Cleanup(site.CloseClientConnections)
			const id = 42
			page.Walk(t, page.Start(t, view, os.Getenv("DORMOUSE_PAGE_SHOTS")), page.Site{
				URL: site.URL, Token: token, ID: id, Game: "openarena", Patience: 20 * time.Second,
				Starting: func(context.Context) error {
					fake.Ready(id)
					fake.Log(id, "------ Server Initialization ------", "<script>document.title = 'evil'</script>", "\x1b[32mOpening IP socket: 0.0.0.0:7042\x1b[0m")
					fake.Past(id, wakes(), day())
					return nil
				},
				Play: func(context.Context) (func(), error) {
					players(fake, id, 1)
					return func() { players(fake, id, 0) }, nil
				},
			})
		})
	}
}

const token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"

func players(f *pagetest.Fake, id int64, how int) {
	f.Change(id, func(s *restpage.Server) { s.Players = &how })
}

// town is servers as people have them.
func town() *pagetest.Fake {
	f := &pagetest.Fake{Tokens: map[string]pagetest.Caller{token: "system:serviceaccount:games:alice"}}
	three, none := 3, 0
	ports := func(number int) []restpage.Port {
		return []restpage.Port{{Name: "game", Number: number, Protocol: "UDP"}}
	}
	f.Put(restpage.Server{
		ID: 1, Name: "survival", Game: "minetest", State: "Ready", Running: true, Players: &three, Capacity: 15,
		Address: "203.0.113.9", Ports: ports(30000), RAM: "4 GB", Disk: "20 GB", Since: time.Now().Add(-3 * time.Hour), Created: time.Now().Add(-90 * time.Hour), Saved: "1.20 EUR",
	})
	f.Put(restpage.Server{
		ID: 2, Name: "creative", Game: "minetest", State: "Asleep", Running: true, Asleep: true, Players: &none, Capacity: 15,
		Address: "creative.games.example", Ports: ports(30001), RAM: "2 GB", Disk: "20 GB", Since: time.Now().Add(-26 * time.Hour), Saved: "4.75 EUR",
	})
	f.Put(restpage.Server{
		ID: 3, Name: "a-server-with-quite-a-long-name-that-somebody-thought-was-funny", Game: "openarena", State: "Unhealthy",
		Why: "The game has not answered its probe for 90 seconds.", Running: true, Players: &none, Capacity: 16, Address: "2001:db8::7:9", Ports: ports(27960),
		Since: time.Now().Add(-5 * time.Minute),
	})
	f.Put(restpage.Server{ID: 4, Name: "<b>tournament</b>", Game: "openarena", State: "Stopped", Capacity: 16, RAM: "2 GB"})
	return f
}

func wakes() []restpage.Wake {
	var all []restpage.Wake
	for i, up := range []time.Duration{3200 * time.Millisecond, 4100 * time.Millisecond, 2900 * time.Millisecond} {
		stages := []restpage.Stage{
			{Name: "scheduled", Took: 140 * time.Millisecond},
			{Name: "started", Took: 900 * time.Millisecond},
			{Name: "up", Took: up},
			{Name: "handed over", Took: 60 * time.Millisecond},
		}
		var took time.Duration
		for _, s := range stages {
			took += s.Took
		}
		all = append(all, restpage.Wake{
			Asked: time.Now().Add(-time.Duration(i*7+2) * time.Hour), Took: took, Stages: stages,
			Message: fmt.Sprintf("Of %s the game took %s to boot.", took, up),
		})
	}
	return all
}

// day is a day with an evening.
func day() []restpage.Sample {
	var all []restpage.Sample
	for i := range 24 * 12 {
		players := int(math.Max(0, 9*math.Sin(float64(i)/288*2*math.Pi-2)+2*math.Sin(float64(i)/5)))
		all = append(all, restpage.Sample{At: time.Now().Add(-24*time.Hour + time.Duration(i)*5*time.Minute), Players: players, Asleep: i > 30 && i < 84})
	}
	return all
}
