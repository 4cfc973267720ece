package page

import (
	"cmp"
	"os"
	"strconv"
	"testing"
	"time"
)

// TestADeployedPage walks through a page that runs somewhere:
//
//	DORMOUSE_PAGE_URL=https://127.0.0.1:8443 DORMOUSE_PAGE_INSECURE=1 \
//	DORMOUSE_PAGE_TOKEN="$(kubectl create token page)" DORMOUSE_PAGE_ID=4242 \
//	DORMOUSE_PAGE_SHOTS=/tmp/shots go test -count=1 ./test/page
//
// It makes a server with that number and those after it, one for each view, and stops them. Who
// wants to see a player calls Walk with a Site of their own.
func TestADeployedPage(t *testing.T) {
	address := os.Getenv("DORMOUSE_PAGE_URL")
	if address == "" {
		t.Skip("DORMOUSE_PAGE_URL names no page")
	}
	id, err := strconv.ParseInt(cmp.Or(os.Getenv("DORMOUSE_PAGE_ID"), "424242"), 10, 64)
	if err != nil {
		t.Fatalf("DORMOUSE_PAGE_ID: %v", err)
	}
	for i, view := range Views {
		t.Run(view.Name, func(t *testing.T) {
			Walk(t, Start(t, view, os.Getenv("DORMOUSE_PAGE_SHOTS")), Site{
				URL: address, Token: os.Getenv("DORMOUSE_PAGE_TOKEN"), Game: os.Getenv("DORMOUSE_PAGE_GAME"),
				ID: id + int64(i), Patience: 5 * time.Minute,
			})
		})
	}
}
