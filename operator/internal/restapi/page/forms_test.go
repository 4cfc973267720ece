package page_test

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"dormouse.dev/dormouse/operator/internal/restapi/page"
)

func TestButtonsDoWhatTheySay(t *testing.T) {
	w := newWorld(t, page.Options{})
	w.Put(ready(1, 0))
	for _, c := range []struct {
		action, hours, back, location, asked string
	}{
		{"stop", "", "/", "/?done=stop", "stop 1 force=false by alice"},
		{"start", "", "/?text=arena", "/?text=arena&done=start", "start 1 by alice"},
		{"wake", "", "/page/servers/1", "/page/servers/1?done=wake", "wake 1 by alice"},
		{"keepawake", "4", "/page/servers/1", "/page/servers/1?done=keepawake", "keepawake 1 4h0m0s by alice"},
		{"keepawake", "0", "/page/servers/1", "/page/servers/1?done=sleepy", "keepawake 1 0s by alice"},
		{"forcestop", "", "https://evil.example", "/?done=forcestop", "stop 1 force=true by alice"},
	} {
		a := w.post("/page/servers/1/"+c.action, url.Values{"back": {c.back}, "hours": {c.hours}})
		a.has(t, http.StatusSeeOther)
		if got := a.Header.Get("Location"); got != c.location {
			t.Errorf("%s goes to %q, want %q", c.action, got, c.location)
		}
		if asked := w.Asked(); !slices.Contains(asked, c.asked) {
			t.Errorf("%s did %q, want %q", c.action, asked, c.asked)
		}
	}
	w.get("/page/servers/1?done=forcestop").has(t, http.StatusOK, "The server stops now.")
	// What comes next isn't about what was done before.
	w.get("/?text=arena&done=stop").has(t, http.StatusOK, "The server stops once nobody plays there.", `name="back" value="/?text=arena"`)
	w.get("/page/servers/1?done=<b>You+won</b>").hasNot(t, "You won")
}

func TestARefusedStopIsShownOnTheServersPage(t *testing.T) {
	w := newWorld(t, page.Options{})
	w.Put(ready(1, 3))
	a := w.post("/page/servers/1/stop", url.Values{"back": {"/"}})
	a.has(t, http.StatusConflict, `role="alert">3 play on server 1. It was not stopped.`, "Stop now, players or not", "arena")
	w.post("/page/servers/1/keepawake", url.Values{"hours": {"9999"}}).has(t, http.StatusBadRequest, "0 to 168 hours")
	w.post("/page/servers/1/explode", nil).has(t, http.StatusNotFound, "There is no such page.")
	for _, id := range []string{"7", "0", "-1", "x", "99999999999999999999"} {
		w.post("/page/servers/"+id+"/start", nil).has(t, http.StatusNotFound, "There is no")
		w.get("/page/servers/"+id).has(t, http.StatusNotFound, "There is no")
	}
}

func TestAServerIsCreatedFromTheForm(t *testing.T) {
	w := newWorld(t, page.Options{})
	w.get("/page/create").has(t, http.StatusOK, `<option value="minetest"`)
	form := func(id, game, ram, disk string) url.Values {
		return url.Values{"id": {id}, "game": {game}, "ram": {ram}, "disk": {disk}}
	}
	a := w.post("/page/create", form("7", "minetest", "2", "10"))
	a.has(t, http.StatusSeeOther)
	if got := a.Header.Get("Location"); got != "/page/servers/7?done=create" {
		t.Errorf("goes to %q", got)
	}
	if asked := w.Asked(); !slices.Equal(asked, []string{"create 7 minetest ram=2 disk=10 by alice"}) {
		t.Errorf("did %q", asked)
	}
	for words, f := range map[string]url.Values{
		"positive whole number":       form("-1", "minetest", "2", "0"),
		"which game":                  form("8", " ", "2", "0"),
		"memory has to be":            form("8", "minetest", "0", "0"),
		"disk has to be":              form("8", "minetest", "1", "-1"),
		"There is a server 7 already": form("7", "openarena", "3", "0"),
	} {
		a := w.post("/page/create", f)
		if a.StatusCode != http.StatusBadRequest && a.StatusCode != http.StatusConflict {
			t.Errorf("%v: status %d", f, a.StatusCode)
		}
		// What was written stays in the form.
		a.has(t, a.StatusCode, words, `role="alert"`, `value="`+f.Get("id")+`"`)
	}
	w.post("/page/create", form("8", strings.Repeat("a", 5<<10), "1", "1")).has(t, http.StatusRequestEntityTooLarge, "larger than 4096 bytes")
}

func TestAListHasPagesAndIsSearched(t *testing.T) {
	w := newWorld(t, page.Options{PageSize: 10})
	for id := int64(1); id <= 25; id++ {
		s := ready(id, 0)
		s.Name = fmt.Sprintf("server%02d", id)
		w.Put(s)
	}
	a := w.get("/")
	a.has(t, http.StatusOK, "server01", "server10", `href="/?after=10"`)
	a.hasNot(t, "server11", "First page")
	b := w.get("/?after=20")
	b.has(t, http.StatusOK, "server21", "server25", "First page", `data-live="/page/live?after=20"`)
	b.hasNot(t, "server20", "Next page")
	c := w.get("/?text=SERVER2")
	c.has(t, http.StatusOK, "server20", "server25", `value="SERVER2"`)
	c.hasNot(t, "server01")
	w.get("/?text=nothing").has(t, http.StatusOK, "No server has this in its name, game or state.")
	w.get("/?text="+strings.Repeat("a", 201)).has(t, http.StatusBadRequest, "200 characters at most")
}

// evil is what somebody could write into whatever they may write.
const evil = `</script><script>alert(1)</script><img src=x onerror=alert(2)>"'` + "`"

func TestWhatStrangersWriteIsOnlyText(t *testing.T) {
	w := newWorld(t, page.Options{})
	s := ready(1, 3)
	s.Name, s.Game, s.State, s.Why, s.Address, s.Saved, s.RAM = evil, evil, evil, evil, evil, evil, evil
	s.Ports = []page.Port{{Name: evil, Number: 1, Protocol: evil}, {Name: "b", Number: 2, Protocol: "TCP"}}
	w.Put(s)
	w.Log(1, evil, "\x1b[31mred\x1b[0m \x07\x00\u202egnihton", strings.Repeat("x", 5000))
	w.Happen(1, page.Event{ID: evil, When: time.Now(), Reason: evil, Message: evil, Count: 2})
	w.Past(1, []page.Wake{{Asked: time.Now(), Took: time.Second, Message: evil, Stages: []page.Stage{{Name: evil, Took: time.Second}}}},
		[]page.Sample{{At: time.Now().Add(-time.Hour), Players: 2}})
	for _, path := range []string{"/", "/page/servers/1", "/page/servers/1/history", "/?text=" + url.QueryEscape(evil), "/signin?next=" + url.QueryEscape(evil)} {
		a := w.get(path)
		a.has(t, http.StatusOK)
		a.hasNot(t, "<script>alert", "<img src=x", "\x1b", "\x07", "\u202e")
	}
	w.get("/page/servers/1").has(t, http.StatusOK, "&lt;script&gt;alert(1)", "<span>red gnihton\n</span>", strings.Repeat("x", 2<<10)+"…\n")
	w.get("/page/servers/1").hasNot(t, strings.Repeat("x", 2<<10+1))
}

func TestAServersPageHasItsPast(t *testing.T) {
	now := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	w := newWorld(t, page.Options{Now: func() time.Time { return now }})
	w.Put(ready(1, 3))
	w.get("/page/servers/1").has(t, http.StatusOK, "Nobody has woken this server yet.", "Nobody has counted players", "Nothing has happened lately.")
	w.Past(1,
		[]page.Wake{{Asked: now.Add(-time.Hour), Took: 2 * time.Second, Stages: []page.Stage{{"scheduled", 500 * time.Millisecond}, {"up", 1500 * time.Millisecond}}}},
		[]page.Sample{
			{At: now.Add(-30 * time.Hour), Players: 9},
			{At: now.Add(-20 * time.Hour), Players: 0, Asleep: true},
			{At: now.Add(-2 * time.Hour), Players: 5},
			{At: now.Add(-time.Hour), Players: 1},
		})
	a := w.get("/page/servers/1/history")
	a.has(t, http.StatusOK,
		"At most 9 played at once in the last 24 hours. The server was asleep for 18 h 0 min.",
		"<td>3 May 12:00</td><td>9</td><td>–</td>", "<td>3 May 16:00</td><td>0</td><td>60 min</td>", "<td>4 May 10:00</td><td>5</td>",
		`<rect class="stage stage-0" x="0" y="0" width="250"`, `<rect class="stage stage-1" x="250" y="0" width="750"`, "scheduled 0.50 s", "up 1.50 s",
	)
	if got := strings.Count(a.body, `<rect class="sleep"`); got != 1 {
		t.Errorf("%d bands of sleep, want one", got)
	}
}
