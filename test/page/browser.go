// Package page drives the operator's page in a headless Chromium, as a person with a browser
// does: over a page with servers in memory, or over one that is deployed. See page_test.go for the
// latter.
package page

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// Program is where Debian's package chromium has its program.
const Program = "/usr/bin/chromium"

// stepTimeout bounds what a page does by itself. What servers do has Site.Patience.
const stepTimeout = 30 * time.Second

// View is how somebody looks at the page.
type View struct {
	// Name names the screenshots.
	Name          string
	Width, Height int64
	Dark, Phone   bool
	// Keyboard is whether they use no mouse.
	Keyboard bool
}

// Views are a phone and a desk, by day and by night.
var Views = []View{
	{Name: "phone-light", Width: 390, Height: 844, Phone: true},
	{Name: "phone-dark", Width: 390, Height: 844, Phone: true, Dark: true},
	{Name: "desk-light", Width: 1280, Height: 800},
	{Name: "desk-dark", Width: 1280, Height: 800, Dark: true, Keyboard: true},
}

// Browser is a Chromium of one's own, with one page open.
type Browser struct {
	t     testing.TB
	ctx   context.Context
	view  View
	shots string

	mu       sync.Mutex
	messages []string
}

// Start starts a Chromium that ends with the test. Screenshots go to a directory, where there is
// one.
func Start(t testing.TB, view View, shots string) *Browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(Program), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		// A page in the cluster may have a certificate of its own making.
		chromedp.Flag("ignore-certificate-errors", os.Getenv(insecureVariable) != ""),
	)
	ctx, end := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(end)
	ctx, endPage := chromedp.NewContext(ctx)
	t.Cleanup(endPage)
	b := &Browser{t: t, ctx: ctx, view: view, shots: shots}
	// The browser lives as long as the first context that is used.
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", Program, err)
	}
	if view.Phone {
		b.do(chromedp.EmulateViewport(view.Width, view.Height, chromedp.EmulateMobile, chromedp.EmulateTouch))
	} else {
		b.do(chromedp.EmulateViewport(view.Width, view.Height))
	}
	scheme := "light"
	if view.Dark {
		scheme = "dark"
	}
	_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
	if err != nil {
		t.Fatalf("emulate %s: %v", scheme, err)
	}
	// A page that nobody looks at doesn't show where the focus is.
	if _, err := chromedp.Call(ctx, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true}); err != nil {
		t.Fatalf("look at the page: %v", err)
	}
	b.listen()
	return b
}

// listen keeps what the page writes to the console: errors of the script, refusals of the
// Content-Security-Policy, and answers that are errors.
func (b *Browser) listen() {
	console := chromedp.Console(b.ctx)
	go func() {
		for message, err := range console {
			if err != nil {
				return
			}
			b.mu.Lock()
			b.messages = append(b.messages, fmt.Sprintf("%s: %s (%s)", message.Type, message.Text, message.URL))
			b.mu.Unlock()
		}
	}()
}

// takeMessages takes what came in the console since the last call.
func (b *Browser) takeMessages() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	messages := b.messages
	b.messages = nil
	return messages
}

func (b *Browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.fatal("%v", err)
	}
}

// evaluate runs a script in the page.
func evaluate[T any](b *Browser, script string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](script))
	if err != nil {
		b.fatal("evaluate %s: %v", script, err)
	}
	return v
}

// until waits until a script's value is true, through loads of other pages.
func (b *Browser) until(what, script string, patience time.Duration) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	for ctx.Err() == nil {
		// A page that is being left has no answer.
		if done, err := chromedp.Run(ctx, chromedp.Poll[bool](script, chromedp.WithPollingTimeout(time.Second))); err == nil && done {
			return
		}
	}
	b.fatal("%s: not within %s", what, patience)
}

// fatal fails the test with what the page says.
func (b *Browser) fatal(format string, args ...any) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	text, _ := chromedp.Run(ctx, chromedp.Evaluate[string]("location.href + '\\n' + document.body.innerText"))
	b.Shot("failed")
	b.t.Fatalf("%s: %s\nThe page: %s\nIts console: %s", b.view.Name, fmt.Sprintf(format, args...), text, strings.Join(b.takeMessages(), "\n"))
}

// Shot writes a screenshot of the whole page, where screenshots are wanted.
func (b *Browser) Shot(name string) {
	b.t.Helper()
	if b.shots == "" {
		return
	}
	ctx, cancel := context.WithTimeout(b.ctx, stepTimeout)
	defer cancel()
	image, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
	if err != nil {
		b.t.Errorf("take a screenshot: %v", err)
		return
	}
	if err := os.WriteFile(filepath.Join(b.shots, b.view.Name+"-"+name+".png"), image, 0o644); err != nil {
		b.t.Error(err)
	}
}

// check fails the test where the page is wider than the view, has text of too little contrast,
// fields without a name, buttons that are too small for a thumb, or wrote to the console.
func (b *Browser) check(name string) {
	b.t.Helper()
	for _, fault := range evaluate[[]string](b, fmt.Sprintf("(%s)(%d, %t)", faults, b.view.Width, b.view.Phone)) {
		b.t.Errorf("%s, %s: %s", b.view.Name, name, fault)
	}
	for _, message := range b.takeMessages() {
		b.t.Errorf("%s, %s: the console has %s", b.view.Name, name, message)
	}
	b.Shot(name)
}
