package dataplane

import (
	"bufio"
	"net"
	"strings"
	"testing"
	"time"

	"dormouse.dev/dormouse/api/v1alpha1"
	"dormouse.dev/dormouse/resolver/internal/proto"
	"dormouse.dev/dormouse/resolver/internal/route"
)

// navigation is what a browser sends that opens a page.
const navigation = "GET /tea?milk=1 HTTP/1.1\r\nHost: lobby\r\nAccept: text/html,application/xhtml+xml,*/*;q=0.8\r\n" +
	"Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n\r\n"

// showsPage makes a port of HTTP one with a waiting page.
func showsPage(p *route.Port) {
	speaksHTTP(p)
	p.Page = &proto.Page{Title: "Tea time", Takes: 40 * time.Second}
}

func TestABrowserIsShownThatTheServiceWakesAndAllOthersAreHeld(t *testing.T) {
	r := newRig(t)
	r.operator.set(accept(v1alpha1.PhaseWaking))
	address := r.serve("web", route.TCP, showsPage)
	browser := dialTCP(t, address)
	started := time.Now()
	write(t, browser, navigation)
	status, header, body := answer(t, bufio.NewReader(browser))
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("the page came after %s", took)
	}
	if status != 503 || header.Get("Connection") != "close" || header.Get("Retry-After") != "5" || header.Get("Cache-Control") != "no-store" {
		t.Errorf("the browser got %d with %v", status, header)
	}
	for _, want := range []string{"<h1>Tea time</h1>", "about 40 seconds"} {
		if !strings.Contains(body, want) {
			t.Errorf("%q isn't in %q", want, body)
		}
	}
	// It woke the service all the same.
	if calls := r.operator.all(); len(calls) == 0 || calls[0].Count != 1 {
		t.Errorf("the wake calls are %+v, want one for one client", calls)
	}
	r.queued(0)
	r.eventually("it is counted", func() bool { return r.refused(proto.WaitingPage) == 1 })
	if n := r.refused(proto.TimedOut); n != 0 {
		t.Errorf("%v clients count as held for too long", n)
	}

	// A script of the same browser waits, and so does whoever is no browser.
	r.phase(v1alpha1.PhaseWaking)
	var held []*net.TCPConn
	for _, head := range []string{request, strings.Replace(strings.Replace(navigation, "navigate", "cors", 1), "document", "empty", 1)} {
		c := dialTCP(t, address)
		write(t, c, head)
		held = append(held, c)
	}
	r.queued(2)
	r.never("they are sent away", time.Second, func() bool { return r.sessions().Queued < 2 })
	server := freeAddress(t, route.TCP)
	webServer(t, server, "I am up")
	r.backend(server, true)
	for _, c := range held {
		if status, _, body := answer(t, bufio.NewReader(c)); status != 200 || body != "I am up" {
			t.Errorf("a client that was held got %d %q", status, body)
		}
	}
	// What the page loads in its place is the server's.
	again := dialTCP(t, address)
	write(t, again, navigation)
	if status, _, body := answer(t, bufio.NewReader(again)); status != 200 || body != "I am up" {
		t.Errorf("after that the browser got %d %q", status, body)
	}
}

func TestABrowserWaitsWhereNoPageIsAskedFor(t *testing.T) {
	r := newRig(t)
	c := dialTCP(t, r.serve("web", route.TCP, speaksHTTP))
	write(t, c, navigation)
	r.queued(1)
	r.never("it is sent away", time.Second, func() bool { return r.sessions().Queued < 1 })
}

func TestTheWaitingPageDoesntPromiseAServiceThatCantBeWoken(t *testing.T) {
	r := newRig(t)
	r.operator.set(notFound)
	address := r.serve("web", route.TCP, showsPage)
	load := func() (again, body string) {
		c := dialTCP(t, address)
		write(t, c, navigation)
		status, header, body := answer(t, bufio.NewReader(c))
		if status != 503 {
			t.Errorf("the browser got %d", status)
		}
		return header.Get("Retry-After"), body
	}
	// A target that is being replaced is there in a moment.
	if again, body := load(); again != "5" || !strings.Contains(body, "Tea time") {
		t.Errorf("at first the browser comes again after %s, and sees %q", again, body)
	}
	r.eventually("the page says so", func() bool {
		again, body := load()
		return again == "60" && strings.Contains(body, "lobby cannot be woken up just now") && !strings.Contains(body, "Tea time")
	})
	r.eventually("it is counted", func() bool { return r.refused(proto.NothingToWake) >= 1 })
}

func TestAServiceThatComesUpWhileThePageIsDueServesTheBrowser(t *testing.T) {
	r := newRig(t)
	server := freeAddress(t, route.TCP)
	webServer(t, server, "I am up")
	r.operator.set(accept(v1alpha1.PhaseAwake))
	address := r.serve("web", route.TCP, showsPage)
	r.backend(server, true)
	// On a busy machine it may take more than one try.
	r.eventually("the browser is served", func() bool {
		c := dialTCP(t, address)
		write(t, c, navigation)
		status, _, body := answer(t, bufio.NewReader(c))
		return status == 200 && body == "I am up"
	})
}
