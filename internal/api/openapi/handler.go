package openapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"github.com/klauspost/compress/gzip"
	"github.com/munnerz/goautoneg"
	"google.golang.org/protobuf/proto"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/version"
)

// Provider adds documents of group versions outside the table: custom resources, aggregated APIs.
// Its methods are not called before a client asks for OpenAPI.
type Provider interface {
	// Revision grows with every change of the other methods' results.
	Revision() uint64
	// Hashes maps the paths of version 3 documents ("apis/GROUP/VERSION") to hashes of their
	// content.
	Hashes() map[string]Hash
	// Document makes one of these documents.
	Document(path string) (*spec3.OpenAPI, error)
	// Extend adds paths and definitions to the version 2 document.
	Extend(doc *spec.Swagger) error
}

// Hash identifies a document's content. While a Whole hash stays the same, so does the document.
// With any other hash, the document may change at the next Revision.
type Hash struct {
	Text  string
	Whole bool
}

const (
	rootV2      = "/openapi/v2"
	rootV3      = "/openapi/v3"
	mediaJSON   = "application/json"
	mediaProto2 = "application/com.github.proto-openapi.spec.v2"
	mediaProto3 = "application/com.github.proto-openapi.spec.v3"
)

// Handler serves /openapi/v2 and /openapi/v3. It is safe for concurrent use.
type Handler struct {
	provider Provider
	on       *api.Switches
	// identity identifies the content of built-in documents; it changes only with the binary.
	identity func() string

	known known

	mu       sync.Mutex // held while a document is made, so one at a time
	revision uint64     // of the provider at the last pruning of pages
	pages    map[page]made
}

// known caches the provider's hashes at one revision.
type known struct {
	mu       sync.Mutex
	revision uint64
	hashes   map[string]Hash // never modified
}

// made is a document and its content's hash.
type made struct {
	hash       string
	compressed []byte
}

type page struct {
	path  string
	proto bool
}

// New returns a Handler for the enabled kinds; provider may be nil.
func New(provider Provider, on *api.Switches) *Handler {
	return &Handler{provider: provider, on: on, identity: sync.OnceValue(func() string { return buildIdentity() + on.String() }), pages: map[page]made{}}
}

// Handles reports whether a path belongs to OpenAPI.
func Handles(path string) bool {
	return path == rootV2 || path == rootV3 || strings.HasPrefix(path, rootV3+"/")
}

// buildIdentity identifies this binary: by its source revision or, for a build from changed files,
// by the file's time.
func buildIdentity() string {
	text := version.Kubernetes
	if info, ok := debug.ReadBuildInfo(); ok {
		text = info.String()
	}
	if path, err := os.Executable(); err == nil {
		if file, err := os.Stat(path); err == nil {
			text += file.ModTime().Format(time.RFC3339Nano)
		}
	}
	return text
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if path == rootV3 {
		h.serveIndex(w)
		return
	}
	media, name := mediaProto3, strings.TrimPrefix(path, rootV3+"/")
	if path == rootV2 {
		media, name = mediaProto2, rootV2
	}
	asProto, ok := negotiate(r.Header.Get("Accept"), media)
	if !ok { // do not make a document that the client cannot read
		code := http.StatusNotAcceptable
		if !h.has(name) {
			code = http.StatusNotFound
		}
		w.WriteHeader(code)
		return
	}
	hash, body, err := h.page(page{name, asProto})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		w.WriteHeader(http.StatusNotFound)
		return
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h.respond(w, r, media, asProto, hash, body)
}

func (h *Handler) respond(w http.ResponseWriter, r *http.Request, media string, asProto bool, hash string, compressed []byte) {
	header := w.Header()
	if wanted := r.URL.Query().Get("hash"); wanted != "" {
		if wanted != hash {
			u := *r.URL
			u.RawQuery = url.Values{"hash": {hash}}.Encode()
			http.Redirect(w, r, u.String(), http.StatusMovedPermanently)
			return
		}
		header.Set("Cache-Control", "public, immutable")
		header.Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
	}
	etag := `"` + hash + `"`
	header.Set("Etag", etag)
	header.Set("Vary", "Accept, Accept-Encoding")
	if strings.Contains(r.Header.Get("If-None-Match"), etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	header.Set("Content-Type", mediaJSON)
	if asProto {
		header.Set("Content-Type", media+".v1.0+protobuf")
	}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		header.Set("Content-Encoding", "gzip")
		_, _ = w.Write(compressed) // the client may be gone
		return
	}
	unpack, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = io.Copy(w, unpack)
}

// negotiate reports whether the client prefers protobuf to JSON.
func negotiate(accept, media string) (asProto, ok bool) {
	if accept == "" {
		return false, true
	}
	for _, clause := range goautoneg.ParseAccept(accept) {
		switch clause.Type + "/" + clause.SubType {
		case media + "@v1.0+protobuf", media + ".v1.0+protobuf":
			return true, true
		case mediaJSON, "*/*", "application/*":
			return false, true
		}
	}
	return false, false
}

// serveIndex lists the version 3 documents.
func (h *Handler) serveIndex(w http.ResponseWriter) {
	type entry struct {
		ServerRelativeURL string `json:"serverRelativeURL"`
	}
	index := struct {
		Paths map[string]entry `json:"paths"`
	}{map[string]entry{}}
	add := func(path, hash string) {
		index.Paths[path] = entry{rootV3 + "/" + path + "?hash=" + hash}
	}
	for _, path := range paths3(h.on) {
		add(path, h.hash(path))
	}
	_, extra := h.extra()
	for path, hash := range extra {
		add(path, hash.Text)
	}
	w.Header().Set("Content-Type", mediaJSON)
	_ = json.NewEncoder(w).Encode(index) // the client may be gone
}

// hash returns the hash of a built-in document.
func (h *Handler) hash(path string) string {
	sum := sha256.Sum256([]byte(path + "\n" + h.identity()))
	return strings.ToUpper(hex.EncodeToString(sum[:]))
}

// has reports whether there is a document at a path; the version 2 document is at rootV2.
func (h *Handler) has(path string) bool {
	_, extra := h.extra()
	_, custom := extra[path]
	return custom || path == rootV2 || contains(paths3(h.on), path)
}

// page returns a document's hash and its compressed bytes. The path of the version 2 document is
// rootV2. Documents are made one at a time, because making one takes many times its size in memory.
func (h *Handler) page(p page) (string, []byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	revision, extra := h.extra()
	h.prune(revision, extra)
	content, custom := extra[p.path]
	hash := content.Text
	switch {
	case custom:
	case p.path == rootV2:
		names := slices.Sorted(maps.Keys(extra))
		for _, name := range names {
			hash += name + extra[name].Text
		}
		hash = h.hash(p.path + hash)
	case contains(paths3(h.on), p.path):
		hash = h.hash(p.path)
	default:
		return "", nil, fs.ErrNotExist
	}
	if page, ok := h.pages[p]; ok && page.hash == hash {
		return hash, page.compressed, nil
	}
	body, err := h.build(p, custom)
	if err != nil {
		return "", nil, fmt.Errorf("make OpenAPI document %s: %w", p.path, err)
	}
	var compressed bytes.Buffer
	pack := gzip.NewWriter(&compressed)
	if _, err := pack.Write(body); err != nil {
		return "", nil, err
	}
	if err := pack.Close(); err != nil {
		return "", nil, err
	}
	page := made{hash, bytes.Clone(compressed.Bytes())}
	h.pages[p] = page
	if p.path == rootV2 {
		// Return the memory, some 80 MB, to the system at once: this happens rarely, and the next
		// garbage collection may be minutes away.
		debug.FreeOSMemory()
	}
	return hash, page.compressed, nil
}

// extra returns the provider's current revision and hashes.
func (h *Handler) extra() (uint64, map[string]Hash) {
	if h.provider == nil {
		return 0, nil
	}
	k := &h.known
	k.mu.Lock()
	defer k.mu.Unlock()
	if revision := h.provider.Revision(); revision != k.revision || k.hashes == nil {
		k.revision, k.hashes = revision, h.provider.Hashes()
	}
	return k.revision, k.hashes
}

// prune drops the documents that may have changed with the provider's revision. The caller holds
// mu.
func (h *Handler) prune(revision uint64, extra map[string]Hash) {
	if revision == h.revision {
		return
	}
	h.revision = revision
	maps.DeleteFunc(h.pages, func(p page, _ made) bool {
		if hash, ok := extra[p.path]; ok {
			return !hash.Whole
		}
		return !contains(paths3(h.on), p.path)
	})
}

func (h *Handler) build(p page, custom bool) ([]byte, error) {
	if p.path == rootV2 {
		doc, err := build2(h.on)
		if err != nil {
			return nil, err
		}
		if h.provider != nil {
			if err := h.provider.Extend(doc); err != nil {
				return nil, err
			}
		}
		data, err := doc.MarshalJSON() // encoding/json would parse the result again
		if err != nil || !p.proto {
			return data, err
		}
		parsed, err := openapi_v2.ParseDocument(data)
		if err != nil {
			return nil, err
		}
		return proto.Marshal(parsed)
	}
	var doc *spec3.OpenAPI
	var err error
	if custom {
		doc, err = h.provider.Document(p.path)
	} else {
		doc, err = build3(p.path, h.on)
	}
	if err != nil {
		return nil, err
	}
	data, err := doc.MarshalJSON() // encoding/json would parse the result again
	if err != nil || !p.proto {
		return data, err
	}
	parsed, err := openapi_v3.ParseDocument(data)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(parsed)
}
