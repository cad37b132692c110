package discovery

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/api"
)

// Handler serves the documents. It is safe for concurrent use.
type Handler struct {
	provider Provider
	address  string
	on       *api.Switches

	mu       sync.Mutex
	revision uint64
	all      []GroupVersion // sorted; nil until first needed
	pages    map[page]*document
}

// page identifies one document in one form.
type page struct {
	path string
	form form
}

type document struct {
	body []byte
	etag string // aggregated documents only
}

// New returns a Handler. provider may be nil. address is the server's own "host:port", for clients
// that ask how to reach it.
func New(provider Provider, address string, on *api.Switches) *Handler {
	return &Handler{provider: provider, address: address, on: on, pages: map[page]*document{}}
}

// Handles reports whether a path is that of a discovery document: /api, /apis, /api/v1,
// /apis/GROUP, /apis/GROUP/VERSION.
func Handles(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch parts[0] {
	case "api":
		return len(parts) <= 2
	case "apis":
		return len(parts) <= 3
	}
	return false
}

// Lists returns the served resources, one list per group version, by preference. The stale group
// versions may be incomplete.
func (h *Handler) Lists() (lists []*metav1.APIResourceList, stale []schema.GroupVersion) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, gv := range h.groupVersions() {
		if gv.Stale {
			stale = append(stale, gv.GroupVersion)
			continue
		}
		lists = append(lists, resourceList(gv))
	}
	return lists, stale
}

// GroupVersions returns all served group versions by preference.
func (h *Handler) GroupVersions() (list []schema.GroupVersion) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, gv := range h.groupVersions() {
		list = append(list, gv.GroupVersion)
	}
	return list
}

// groupVersions returns all served group versions, sorted. The caller holds h.mu.
func (h *Handler) groupVersions() []GroupVersion {
	var revision uint64
	if h.provider != nil {
		revision = h.provider.Revision()
	}
	if h.all != nil && h.revision == revision {
		return h.all
	}
	all := BuiltIn(h.on)
	if h.provider != nil {
		all = lastOfEach(append(all, h.provider.GroupVersions()...))
	}
	sortGroupVersions(all)
	h.all, h.revision, h.pages = all, revision, map[page]*document{}
	return all
}

// refuse answers with a Status in JSON, whatever the client accepts.
func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string, details *metav1.StatusDetails) {
	body, err := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Message: message, Reason: reason, Details: details, Code: int32(code)})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(body) // the client may be gone
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := "/" + strings.Trim(r.URL.Path, "/")
	f, ok := negotiate(r.Header.Get("Accept"), path == "/api" || path == "/apis")
	if !ok {
		if plain, _ := negotiate("", false); !h.has(path, plain) { // 404 comes before 406
			http.NotFound(w, r)
			return
		}
		refuse(w, http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf", nil)
		return
	}
	doc, err := h.document(path, f)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if doc == nil {
		http.NotFound(w, r)
		return
	}
	header := w.Header()
	header.Set("Vary", "Accept")
	if doc.etag != "" {
		header.Set("ETag", doc.etag)
		header.Set("Cache-Control", "public")
		if matches(r.Header.Get("If-None-Match"), doc.etag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	} else {
		header.Set("Cache-Control", "no-cache, private")
	}
	header.Set("Content-Type", f.contentType())
	_, _ = w.Write(doc.body) // the client may be gone
}

func matches(ifNoneMatch, etag string) bool {
	for _, candidate := range strings.Split(ifNoneMatch, ",") {
		candidate = strings.TrimPrefix(strings.TrimSpace(candidate), "W/")
		if candidate == etag || candidate == "*" {
			return true
		}
	}
	return false
}

// has reports whether there is a page at the path.
func (h *Handler) has(path string, f form) bool {
	doc, err := h.document(path, f)
	return err != nil || doc != nil
}

// document returns the page at a path; nil if there is none.
func (h *Handler) document(path string, f form) (*document, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.groupVersions()
	key := page{path, f}
	if doc, ok := h.pages[key]; ok {
		return doc, nil
	}
	obj := h.build(path, f, all)
	if obj == nil {
		return nil, nil
	}
	body, err := f.encode(obj)
	if err != nil {
		return nil, fmt.Errorf("encode discovery document %s: %w", path, err)
	}
	doc := &document{body: body}
	if f.aggregated {
		sum := sha256.Sum256(body)
		doc.etag = `"` + strings.ToUpper(hex.EncodeToString(sum[:])) + `"`
	}
	h.pages[key] = doc
	return doc, nil
}

func (h *Handler) build(path string, f form, all []GroupVersion) runtime.Object {
	parts := strings.Split(path[1:], "/")
	core := parts[0] == "api"
	if f.aggregated {
		var some []GroupVersion
		for _, gv := range all {
			if (gv.Group == "") == core {
				some = append(some, gv)
			}
		}
		return aggregate(some)
	}
	switch {
	case core && len(parts) == 1:
		return &metav1.APIVersions{
			TypeMeta: metav1.TypeMeta{Kind: "APIVersions"},
			Versions: []string{"v1"},
			ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{
				{ClientCIDR: "0.0.0.0/0", ServerAddress: h.address},
			},
		}
	case core:
		return findList(all, schema.GroupVersion{Version: parts[1]})
	case len(parts) == 1:
		return &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: groupsOf(all)}
	case len(parts) == 2:
		for _, g := range groupsOf(all) {
			if g.Name == parts[1] {
				g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
				return &g
			}
		}
	case len(parts) == 3 && parts[1] != "":
		return findList(all, schema.GroupVersion{Group: parts[1], Version: parts[2]})
	}
	return nil
}

func findList(all []GroupVersion, gv schema.GroupVersion) runtime.Object {
	for _, have := range all {
		if have.GroupVersion == gv {
			return resourceList(have)
		}
	}
	return nil
}

func resourceList(gv GroupVersion) *metav1.APIResourceList {
	l := &metav1.APIResourceList{
		TypeMeta:     metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"},
		GroupVersion: gv.String(), APIResources: gv.Resources,
	}
	if gv.Group == "" {
		l.APIVersion = "" // as upstream for the core group
	}
	if l.APIResources == nil {
		l.APIResources = []metav1.APIResource{}
	}
	return l
}

var protobufSerializer = protobuf.NewSerializer(api.Scheme, api.Scheme)

func (f form) encode(obj runtime.Object) ([]byte, error) {
	if f.media == mediaProtobuf {
		var buf bytes.Buffer
		err := protobufSerializer.Encode(obj, &buf)
		return buf.Bytes(), err
	}
	body, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	if f.media == mediaYAML {
		return yaml.JSONToYAML(body)
	}
	return append(body, '\n'), nil
}
