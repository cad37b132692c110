package ui

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
)

// Path is the path of the page.
const Path = "/ui/"

//go:embed files
var embedded embed.FS

// policy lets the page run its own files, call its own server, and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; " +
	"frame-ancestors 'none'; base-uri 'none'; form-action 'self'; require-trusted-types-for 'script'; trusted-types 'none'"

// media are the types of the files, by the ends of their names.
var media = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	".json": "application/json", ".svg": "image/svg+xml",
}

// file is a file as it is served.
type file struct {
	media, tag      string
	plain, deflated []byte
}

// files reads and compresses the files at the first request.
var files = sync.OnceValues(func() (map[string]*file, error) {
	found := map[string]*file{}
	err := fs.WalkDir(embedded, "files", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := embedded.ReadFile(name)
		if err != nil {
			return err
		}
		var small bytes.Buffer
		z, err := gzip.NewWriterLevel(&small, gzip.BestCompression)
		if err != nil {
			return err
		}
		if _, err := z.Write(data); err != nil {
			return err
		}
		if err := z.Close(); err != nil {
			return err
		}
		sum := sha256.Sum256(data)
		found[strings.TrimPrefix(name, "files/")] = &file{
			media: media[path.Ext(name)], tag: `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`, plain: data, deflated: small.Bytes(),
		}
		return nil
	})
	return found, err
})

// Handler serves the page's files below Path, without authentication.
func Handler() http.Handler { return http.HandlerFunc(serve) }

func serve(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path+"/" == Path {
		http.Redirect(w, r, Path, http.StatusPermanentRedirect)
		return
	}
	all, err := files()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	name := strings.TrimPrefix(r.URL.Path, Path)
	if name == "" {
		name = "index.html"
	}
	f := all[name]
	if f == nil {
		http.Error(w, "the page has no such file", http.StatusNotFound)
		return
	}
	f.send(w, r)
}

// send answers with the file, compressed if the browser accepts that.
func (f *file) send(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Type", f.media)
	header.Set("Cache-Control", "no-cache") // the browser asks each time, by the tag
	header.Set("ETag", f.tag)
	header.Set("Vary", "Accept-Encoding")
	if r.Header.Get("If-None-Match") == f.tag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	body := f.plain
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		body = f.deflated
		header.Set("Content-Encoding", "gzip")
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	if r.Method == http.MethodHead {
		return
	}
	_, _ = w.Write(body) // the browser has gone
}
