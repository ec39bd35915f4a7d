package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"mime"
	"net/http"
	"path"
	"strconv"
	"sync"

	"example.org/mta/operator/api"
)

// What pages are made of in the browser. htmx.min.js is htmx 4.0.1 (htmx.LICENSE), uPlot.* is uPlot 1.6.32
// (uPlot.LICENSE), both as the npm registry has them; assets_test.go has their SHA-256.
//
//go:embed assets/*.js assets/*.css assets/*.svg
var assetFiles embed.FS

// asset is a file that browsers keep for good: its URL has a part of its hash.
type asset struct {
	name, hash, mime string
	plain, gzip      []byte
}

// readAssets gives the same to all servers of the process, which leave it alone: to compress takes longer than all else
// of a server's start.
var readAssets = sync.OnceValues(func() (map[string]*asset, error) {
	entries, err := assetFiles.ReadDir("assets")
	if err != nil {
		return nil, err
	}
	out := make(map[string]*asset, len(entries))
	for _, e := range entries {
		text, err := assetFiles.ReadFile("assets/" + e.Name())
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(text)
		var b bytes.Buffer
		z, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
		z.Write(text)
		z.Close()
		out[e.Name()] = &asset{e.Name(), hex.EncodeToString(sum[:8]), mime.TypeByExtension(path.Ext(e.Name())),
			text, b.Bytes()}
	}
	return out, nil
})

// assetURL gives the URL of an asset.
func (s *Server) assetURL(name string) (string, error) {
	a := s.assets[name]
	if a == nil {
		return "", fmt.Errorf("there is no asset %s", name)
	}
	return pathWith(s.cfg.BasePath, "/assets/"+a.hash+"/"+a.name), nil
}

func (s *Server) asset(w http.ResponseWriter, r *request) error {
	a := s.assets[r.path("name")]
	if a == nil || a.hash != r.path("hash") {
		return api.NotFound("load the page again", "there is no such file")
	}
	h := w.Header()
	h.Set("Content-Type", a.mime)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	text := a.plain
	if acceptsGzip(r.http) {
		h.Set("Content-Encoding", "gzip")
		text = a.gzip
	}
	h.Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = w.Write(text) // an error is the browser's, that has gone
	return nil
}

// favicon answers browsers that ask for it without having read a page.
func (s *Server) favicon(w http.ResponseWriter, r *request) error {
	to, err := s.assetURL("icon.svg")
	if err == nil {
		http.Redirect(w, r.http, to, http.StatusFound)
	}
	return err
}
