package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"html/template"
	"net/http"
	"time"
)

//go:embed static
var staticFiles embed.FS

//go:embed templates
var templateFiles embed.FS

// asset is a file that is the same for everybody.
type asset struct {
	content []byte
	// hash names its version.
	hash, mediaType string
}

var assets = map[string]asset{
	"page.css": readAsset("page.css", "text/css; charset=utf-8"),
	"page.js":  readAsset("page.js", "text/javascript; charset=utf-8"),
	"icon.svg": readAsset("icon.svg", "image/svg+xml"),
}

// readAsset reads a file that was built in: a test sees that they all are there.
func readAsset(name, mediaType string) asset {
	content, _ := staticFiles.ReadFile("static/" + name)
	sum := sha256.Sum256(content)
	return asset{content: content, hash: hex.EncodeToString(sum[:8]), mediaType: mediaType}
}

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"asset": func(name string) string { return "/page/static/" + name + "?v=" + assets[name].hash },
}).ParseFS(templateFiles, "templates/*.html"))

// static serves a file. A browser keeps for good what it asked for by this version's hash; another
// version's may be asked for while the operator is upgraded, and isn't kept.
func (p *page) static(w http.ResponseWriter, r *http.Request) {
	a, found := assets[r.PathValue("file")]
	if !found {
		p.notFound(w, r)
		return
	}
	h := w.Header()
	h.Set("Content-Type", a.mediaType)
	h.Set("ETag", `"`+a.hash+`"`)
	h.Set("Cache-Control", "no-cache")
	if r.URL.Query().Get("v") == a.hash {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.content))
}
