package page

import (
	"time"

	"github.com/chromedp/chromedp"
)

// Open opens a page of any site.
func (b *Browser) Open(url string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url))
}

// Until waits until a script's value is true, through loads of other pages.
func (b *Browser) Until(what, script string, patience time.Duration) {
	b.t.Helper()
	b.until(what, script, patience)
}
