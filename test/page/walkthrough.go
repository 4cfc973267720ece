package page

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// insecureVariable, where it isn't empty, has Chromium take any certificate.
const insecureVariable = "DORMOUSE_PAGE_INSECURE"

// Site is a page to walk through, and the server that is made there.
type Site struct {
	URL, Token string
	// ID is a number that no server has yet. Game is what it is to run: where it is empty the first
	// that is offered.
	ID   int64
	Game string
	// Patience is how long a server may take to become Ready, and to stop.
	Patience time.Duration
	// Starting, where it isn't nil, is called once the page shows that the server isn't Ready yet.
	Starting func(ctx context.Context) error
	// Play, where it isn't nil, has somebody play there until they leave.
	Play func(ctx context.Context) (leave func(), err error)
}

// Walk signs in, creates a server, starts it, watches it become Ready without loading the page
// again, sees a player, stops it, and signs out.
func Walk(t testing.TB, b *Browser, s Site) {
	t.Helper()
	b.signIn(s)
	b.create(s)
	b.start(s)
	b.play(s)
	b.stop(s)
	b.press(`form[action="/signout"] button`)
	b.until("signing out", `location.pathname === "/signin"`, stepTimeout)
	b.do(chromedp.Navigate(s.URL + "/"))
	b.until("being signed out", `location.pathname === "/signin" && document.activeElement?.id === "token"`, stepTimeout)
	b.check("signed-out")
}

func (b *Browser) signIn(s Site) {
	b.t.Helper()
	b.do(chromedp.Navigate(s.URL + "/"))
	b.until("the form to sign in, with the focus", `document.activeElement?.id === "token"`, stepTimeout)
	b.check("signin")
	b.write("#token", s.Token)
	b.press(`form[action="/signin"] button`)
	b.until("signing in", `document.querySelector("h1")?.textContent === "Servers"`, stepTimeout)
	if body := evaluate[string](b, "document.documentElement.outerHTML"); strings.Contains(body, s.Token) {
		b.t.Errorf("%s: the token is on the page", b.view.Name)
	}
	if cookies := evaluate[string](b, "document.cookie"); cookies != "" {
		b.t.Errorf("%s: the script sees the cookies %s", b.view.Name, cookies)
	}
	b.live()
	b.check("list")
}

func (b *Browser) create(s Site) {
	b.t.Helper()
	b.press(`a[href="/page/create"]`)
	b.until("the form for a server, with the focus", `document.activeElement?.id === "id" && !!document.getElementById("game")`, stepTimeout)
	b.write("#id", strconv.FormatInt(s.ID, 10))
	if s.Game != "" {
		b.choose("#game", s.Game)
	}
	b.check("create")
	b.press(`form[action="/page/create"] button`)
	b.until("the new server's page", fmt.Sprintf(`location.pathname === "/page/servers/%d" && !!document.getElementById("server")`, s.ID), stepTimeout)
	b.live()
	b.check("created")
}

// state is a script that reads the server's state on its page.
const state = `document.querySelector('#server [data-f="state"]')?.textContent`

func (b *Browser) start(s Site) {
	b.t.Helper()
	// Where a server runs once it is made there is nothing to start.
	if evaluate[bool](b, `!document.querySelector('#server form[data-do="start"]').hidden`) {
		b.press(`#server form[data-do="start"] button`)
		b.until("what was done", `document.getElementById("status")?.textContent === "The server starts."`, stepTimeout)
	}
	b.live()
	b.check("starting")
	evaluate[bool](b, "window.sameDocument = true")
	if s.Starting != nil {
		b.until("that it isn't Ready", state+` !== "Ready"`, stepTimeout)
		if err := s.Starting(b.ctx); err != nil {
			b.fatal("start the server: %v", err)
		}
	}
	b.until("Ready", state+` === "Ready"`, s.Patience)
	if !evaluate[bool](b, "window.sameDocument === true") {
		b.t.Errorf("%s: the page was loaded again to show Ready", b.view.Name)
	}
	b.until("a log", `document.getElementById("log").textContent.trim() !== ""`, s.Patience)
	b.check("ready")
}

func (b *Browser) play(s Site) {
	b.t.Helper()
	if s.Play == nil {
		return
	}
	leave, err := s.Play(b.ctx)
	if err != nil {
		b.fatal("play: %v", err)
	}
	const players = `document.querySelector('#server [data-f="players"]').textContent`
	b.until("a player", "/^1( of|$)/.test("+players+")", s.Patience)
	b.check("played")
	b.do(chromedp.Navigate(s.URL + "/"))
	b.live()
	b.until("the player in the list", fmt.Sprintf(`/^1( of|$)/.test(document.querySelector('#servers tr[data-id="%d"] [data-f="players"]')?.textContent)`, s.ID), stepTimeout)
	b.check("list-played")
	leave()
	b.until("that the player left", fmt.Sprintf(`/^(0|–)/.test(document.querySelector('#servers tr[data-id="%d"] [data-f="players"]')?.textContent)`, s.ID), s.Patience)
	b.do(chromedp.Navigate(fmt.Sprintf("%s/page/servers/%d", s.URL, s.ID)))
}

func (b *Browser) stop(s Site) {
	b.t.Helper()
	b.live()
	b.press(`#server form[data-do="stop"] button`)
	b.until("the question", `document.getElementById("confirm").open`, stepTimeout)
	b.check("question")
	if b.view.Keyboard {
		// Escape is no, and leaves everything as it was.
		b.do(chromedp.KeyEvent(kb.Escape))
		b.until("no question", `!document.getElementById("confirm").open`, stepTimeout)
		b.press(`#server form[data-do="stop"] button`)
		b.until("the question", `document.getElementById("confirm").open`, stepTimeout)
	}
	b.press(`#confirm button[value="yes"]`)
	// The page that is left may show Stopped, too.
	b.until("what was done", `document.getElementById("status")?.textContent === "The server stops once nobody plays there."`, stepTimeout)
	b.live()
	b.until("Stopped", state+` === "Stopped"`, s.Patience)
	b.check("stopped")
}

// live waits until the page's stream is open.
func (b *Browser) live() {
	b.t.Helper()
	b.until("the stream", `document.documentElement.dataset.live === "yes"`, stepTimeout)
}

// press presses a button or a link: with a thumb, a mouse, or the keys.
func (b *Browser) press(what string) {
	b.t.Helper()
	switch {
	case b.view.Keyboard:
		b.tabTo(what)
		b.do(chromedp.KeyEvent(kb.Enter))
	case b.view.Phone:
		b.do(chromedp.Tap(chromedp.CSS(what)))
	default:
		b.do(chromedp.Click(chromedp.CSS(what)))
	}
}

func (b *Browser) write(field, words string) {
	b.t.Helper()
	if b.view.Keyboard {
		b.tabTo(field)
		b.do(chromedp.KeyEvent(words))
		return
	}
	b.do(chromedp.SendKeys(chromedp.CSS(field), words))
}

func (b *Browser) choose(field, value string) {
	b.t.Helper()
	if b.view.Keyboard {
		// A list that has the focus takes the letters of what is in it.
		b.tabTo(field)
		b.do(chromedp.KeyEvent(value))
		return
	}
	b.do(chromedp.SetValue(chromedp.CSS(field), value))
}

// tabTo presses Tab until an element has the focus, and fails where that isn't seen.
func (b *Browser) tabTo(what string) {
	b.t.Helper()
	const most = 80
	for range most {
		if evaluate[bool](b, fmt.Sprintf("document.activeElement.matches(%q)", what)) {
			if !evaluate[bool](b, `document.activeElement.matches(":focus-visible") && getComputedStyle(document.activeElement).outlineStyle !== "none"`) {
				b.t.Errorf("%s: nobody sees that %s has the focus", b.view.Name, what)
			}
			return
		}
		b.do(chromedp.KeyEvent(kb.Tab))
	}
	b.fatal("%s isn't reached with %d tabs", what, most)
}
