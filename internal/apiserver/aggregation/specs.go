package aggregation

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	openapiaggregator "k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/openapiconv"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/knarr-project/knarr/internal/api/openapi"
)

// specs tracks which OpenAPI documents the remotes have. Nothing is fetched before the first client
// requests OpenAPI. Afterwards the list is renewed in the background when it is older than
// specsAge, or when a server becomes available again.
type specs struct {
	mu        sync.Mutex
	requested bool
	fetched   time.Time
	fetching  bool
	known     map[schema.GroupVersion]specOf
	revision  atomic.Uint64
	wanted    chan struct{}
}

// specOf is the location of a remote's version 3 document. An empty path means that it is converted
// from version 2.
type specOf struct{ path, query, hash string }

// specsAge is how long a list of documents is valid, specsTimeout limits a request for one.
const (
	specsAge     = time.Minute
	specsTimeout = 5 * time.Second
)

// OpenAPI is the aggregator as openapi.Provider.
type OpenAPI struct{ *Aggregator }

// Revision implements openapi.Provider.
func (o OpenAPI) Revision() uint64 {
	o.specs.refresh(o.Aggregator)
	return o.specs.revision.Load() + o.Aggregator.revision.Load()
}

// Hashes implements openapi.Provider.
func (o OpenAPI) Hashes() map[string]openapi.Hash {
	o.specs.refresh(o.Aggregator)
	o.specs.mu.Lock()
	defer o.specs.mu.Unlock()
	hashes := map[string]openapi.Hash{}
	for gv, s := range o.specs.known {
		if _, ok := o.Serves(gv); ok {
			// Use the hash that the server reports.
			hashes["apis/"+gv.String()] = openapi.Hash{Text: s.hash}
		}
	}
	return hashes
}

// refresh fetches the list: synchronously the first time, later in the background.
func (s *specs) refresh(a *Aggregator) {
	if len(*a.remotes.Load()) == 0 {
		return
	}
	s.mu.Lock()
	first := !s.requested
	due := first || time.Since(s.fetched) > specsAge
	if !due || s.fetching {
		s.mu.Unlock()
		return
	}
	s.requested, s.fetching = true, true
	s.mu.Unlock()
	if first {
		s.fetch(a)
		return
	}
	s.wake()
}

// refetch fetches the list of a server that is available again, if a client has requested OpenAPI
// before.
func (s *specs) refetch(a *Aggregator) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.requested && !s.fetching {
		s.fetching = true
		s.wake()
	}
}

func (s *specs) wake() {
	select {
	case s.wanted <- struct{}{}:
	default:
	}
}

// run does the background fetches.
func (s *specs) run(ctx context.Context, a *Aggregator) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wanted:
			s.fetch(a)
		}
	}
}

func (s *specs) fetch(a *Aggregator) {
	ctx, cancel := context.WithTimeout(context.Background(), specsTimeout)
	defer cancel()
	type answer struct {
		gv schema.GroupVersion
		specOf
		err error
	}
	remotes := *a.remotes.Load()
	answers := make(chan answer, len(remotes))
	asked := 0
	for gv, r := range remotes {
		if r.available.Load() {
			asked++
			go func() { at, err := r.findSpec(ctx); answers <- answer{gv, at, err} }()
		}
	}
	found := map[schema.GroupVersion]specOf{}
	for range asked {
		got := <-answers
		if got.err != nil {
			a.cfg.Logger.Debug("an extension server returned no OpenAPI document", "groupVersion", got.gv.String(), "err", got.err)
			continue
		}
		found[got.gv] = got.specOf
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := len(found) != len(s.known)
	for gv, at := range found {
		changed = changed || s.known[gv] != at
	}
	s.known, s.fetched, s.fetching = found, time.Now(), false
	if changed {
		s.revision.Add(1)
	}
}

// fetchJSON requests a document below /openapi from the server.
func (r *Remote) fetchJSON(ctx context.Context, path, query string) (body []byte, etag string, err error) {
	location, err := r.location()
	if err != nil {
		return nil, "", err
	}
	location.Path, location.RawQuery = path, query
	resp, err := r.request(ctx, location.String(), "application/json", specsTimeout)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, "", fs.ErrNotExist
	default:
		return nil, "", fmt.Errorf("%s: %s", location, resp.Status)
	}
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	return body, resp.Header.Get("Etag"), err
}

// findSpec finds the group version's document in the server's version 3 index. Servers without an
// index have version 2.
func (r *Remote) findSpec(ctx context.Context) (specOf, error) {
	body, _, err := r.fetchJSON(ctx, "/openapi/v3", "")
	if errors.Is(err, fs.ErrNotExist) {
		body, _, err = r.fetchJSON(ctx, "/openapi/v2", "")
		return specOf{hash: hashOf(body)}, err
	}
	if err != nil {
		return specOf{}, err
	}
	return findInIndex(body, r.gv)
}

// findInIndex looks up the document of a group version in a version 3 index.
func findInIndex(body []byte, gv schema.GroupVersion) (specOf, error) {
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(body, &index); err != nil {
		return specOf{}, err
	}
	entry, ok := index.Paths["apis/"+gv.String()]
	if !ok {
		return specOf{}, fs.ErrNotExist
	}
	at, err := url.Parse(entry.ServerRelativeURL)
	if err != nil {
		return specOf{}, err
	}
	hash := at.Query().Get("hash")
	if hash == "" {
		hash = hashOf([]byte(entry.ServerRelativeURL))
	}
	return specOf{path: at.Path, query: at.RawQuery, hash: hash}, nil
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return strings.ToUpper(hex.EncodeToString(sum[:]))
}

// Document implements openapi.Provider.
func (o OpenAPI) Document(path string) (*spec3.OpenAPI, error) {
	gv, err := schema.ParseGroupVersion(strings.TrimPrefix(path, "apis/"))
	if err != nil {
		return nil, err
	}
	r, ok := o.Serves(gv)
	o.specs.mu.Lock()
	at, known := o.specs.known[gv]
	o.specs.mu.Unlock()
	if !ok || !known {
		return nil, fs.ErrNotExist
	}
	ctx, cancel := context.WithTimeout(context.Background(), specsTimeout)
	defer cancel()
	if at.path == "" {
		doc, err := r.version2(ctx)
		if err != nil {
			return nil, err
		}
		return toVersion3(doc)
	}
	body, _, err := r.fetchJSON(ctx, at.path, at.query)
	if err != nil {
		return nil, err
	}
	doc := &spec3.OpenAPI{}
	return doc, json.Unmarshal(body, doc)
}

// version2 returns the server's version 2 document, reduced to the remote's own paths and their
// dependencies.
func (r *Remote) version2(ctx context.Context) (*spec.Swagger, error) {
	body, _, err := r.fetchJSON(ctx, "/openapi/v2", "")
	if err != nil {
		return nil, err
	}
	return groupVersionPart(body, r.gv)
}

// groupVersionPart returns the part of a version 2 document for a group version.
func groupVersionPart(body []byte, gv schema.GroupVersion) (*spec.Swagger, error) {
	doc := &spec.Swagger{}
	if err := json.Unmarshal(body, doc); err != nil {
		return nil, err
	}
	return recoverPanics(func() (*spec.Swagger, error) {
		return openapiaggregator.FilterSpecByPathsWithoutSideEffects(doc, []string{"/apis/" + gv.String() + "/"}), nil
	})
}

func toVersion3(doc *spec.Swagger) (*spec3.OpenAPI, error) {
	return recoverPanics(func() (*spec3.OpenAPI, error) { return openapiconv.ConvertV2ToV3(doc), nil })
}

// recoverPanics recovers panics of the library, which cannot handle some incomplete documents of
// other servers, such as operations without responses.
func recoverPanics[T any](work func() (T, error)) (out T, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the document cannot be used: %v", cause)
		}
	}()
	return work()
}

// Extend implements openapi.Provider. It leaves out servers that do not answer or whose documents
// are unusable.
func (o OpenAPI) Extend(doc *spec.Swagger) error {
	for gv, r := range *o.remotes.Load() {
		if !r.available.Load() {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), specsTimeout)
		part, err := r.version2(ctx)
		cancel()
		if err != nil {
			o.cfg.Logger.Debug("an extension server returned no OpenAPI document", "groupVersion", gv.String(), "err", err)
			continue
		}
		if err := mergePart(doc, part); err != nil {
			o.cfg.Logger.Warn("an extension server's OpenAPI document cannot be merged", "groupVersion", gv.String(), "err", err)
		}
	}
	return nil
}

func mergePart(doc, part *spec.Swagger) error {
	if part.Paths == nil {
		return nil
	}
	_, err := recoverPanics(func() (*spec.Swagger, error) {
		return doc, openapiaggregator.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(doc, part)
	})
	return err
}
