package env

import (
	"context"
	"os"
	"sync"

	"dormouse.dev/dormouse/internal/dev/images"
)

// webServer is the test web server, which few tests need.
var webServer = images.Program{Name: "webserver", Package: "./test/webserver", Image: "dormouse-testweb"}

// webImage is the web server's image in the local cluster, once somebody has asked for it.
type webImage struct {
	mu  sync.Mutex
	ref string
}

// WebServer builds the test web server, loads its image into the local cluster's nodes, and gives
// the image's reference. It does so once.
func (e *Env) WebServer(ctx context.Context) (string, error) {
	e.web.mu.Lock()
	defer e.web.mu.Unlock()
	if e.web.ref == "" {
		refs, err := e.Load(ctx, e.Repo, []images.Program{webServer}, os.Stderr)
		if err != nil {
			return "", err
		}
		e.web.ref = refs[webServer.Image]
	}
	return e.web.ref, nil
}
