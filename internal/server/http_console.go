package server

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ringrift/ringlog/api"
	"github.com/ringrift/ringlog/internal/console"
)

// consolePath is where the console is. Its files hold nothing of the cluster, and a browser that opens a page cannot
// send a token with it, so these routes need none: the page asks for the token and sends it with each call.
const consolePath = "/ui/"

// consolePolicy lets the console load and call nothing but this node, and no other page frame it. No code is made of
// text, neither by script elements nor by what a payload may hold.
const consolePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types"

// getConsole answers GET /ui/ with the page. Screens are told apart by the fragment of its URL, which no browser sends.
func getConsole(w http.ResponseWriter, r *http.Request) error {
	return serveConsole(w, r, console.Index)
}

// getConsoleAsset answers GET /ui/assets/{file} with a script, a style or an image.
func getConsoleAsset(w http.ResponseWriter, r *http.Request) error {
	return serveConsole(w, r, "assets/"+r.PathValue("file"))
}

// serveConsole answers with a file of the console, compressed for those who take that, and with 304 to those who have
// it.
func serveConsole(w http.ResponseWriter, r *http.Request, name string) error {
	if err := newParams(r).done(); err != nil {
		return err
	}
	file, ok := console.Open(name)
	if !ok {
		return api.Refuse(api.NotFound, "file", fmt.Sprintf("the console of this node has no %.200q", name),
			"reload "+consolePath+": the node may have another version than the page")
	}
	h := w.Header()
	h.Set("Content-Type", file.Type)
	h.Set("Content-Security-Policy", consolePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	// The page is asked for each time, so after an upgrade it loads the new files; what is named by its content is kept.
	h.Set("Cache-Control", "no-cache")
	if file.Named {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	content, tag := file.Content, file.SHA256
	h.Set("Vary", "Accept-Encoding")
	if file.Gzip != nil && takesGzip(r) {
		h.Set("Content-Encoding", "gzip")
		content, tag = file.Gzip, tag+"-gzip"
	}
	h.Set("ETag", `"`+tag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	return nil
}

// takesGzip reports whether the caller accepts gzip.
func takesGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		coding, weight, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			// A weight of 0 refuses it.
			weight = strings.TrimPrefix(strings.TrimSpace(weight), "q=")
			q, err := strconv.ParseFloat(weight, 64)
			return weight == "" || (err == nil && q > 0)
		}
	}
	return false
}
