package apiserver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	listvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/cache"
)

// listRequest is the parsed options of a list or watch.
type listRequest struct {
	opts   metav1.ListOptions
	labels labels.Selector
	fields fields.Selector
	// fieldsOf is set if the cache entries' headers lack the selected fields: those of custom
	// resources in the request's version.
	fieldsOf func(*cache.Entry) (fields.Set, error)
}

// newListRequest parses the selectors and validates the options by upstream's rules.
func (e *endpoint) newListRequest(opts metav1.ListOptions) (*listRequest, error) {
	req := &listRequest{opts: opts, labels: labels.Everything(), fields: fields.Everything()}
	var err error
	if opts.LabelSelector != "" {
		if req.labels, err = labels.Parse(opts.LabelSelector); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	if opts.FieldSelector != "" {
		if req.fields, err = fields.ParseSelector(opts.FieldSelector); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		req.fields, err = req.fields.Transform(e.selectable)
		if err != nil {
			return nil, err
		}
	}
	if e.custom != nil {
		req.fieldsOf = e.customFields(req.fields)
	}
	internal := &internalversion.ListOptions{
		LabelSelector: req.labels, FieldSelector: req.fields, Watch: opts.Watch, AllowWatchBookmarks: opts.AllowWatchBookmarks,
		ResourceVersion: opts.ResourceVersion, ResourceVersionMatch: opts.ResourceVersionMatch, TimeoutSeconds: opts.TimeoutSeconds,
		Limit: opts.Limit, Continue: opts.Continue, SendInitialEvents: opts.SendInitialEvents,
	}
	if errs := listvalidation.ValidateListOptions(internal, true); len(errs) > 0 {
		return nil, invalidListOptions(errs)
	}
	return req, nil
}

// coreEventFields are names of Event fields in the core group only.
var coreEventFields = []string{"involvedObject", "source", "reportingComponent"}

// selectable refuses a field that the kind cannot be selected by, and translates an alias.
func (e *endpoint) selectable(name, value string) (string, string, error) {
	strategy := e.strategy
	switch {
	case e.gvk.Group == "events.k8s.io" && slices.Contains(coreEventFields, strings.SplitN(name, ".", 2)[0]):
	case name == "metadata.name", name == "metadata.namespace" && (e.kind.Namespaced || len(strategy.FieldNames) == 0 && e.custom == nil), slices.Contains(strategy.FieldNames, name):
		return name, value, nil
	case strategy.FieldAliases[name] != "":
		return strategy.FieldAliases[name], value, nil
	case e.custom != nil:
	case len(strategy.FieldNames) == 0:
		return "", "", apierrors.NewBadRequest(fmt.Sprintf("%q is not a known field selector: only \"metadata.name\", \"metadata.namespace\"", name))
	}
	switch e.gvk.Kind {
	case "Job":
		return "", "", apierrors.NewBadRequest(fmt.Sprintf("field label %q not supported for Job", name))
	case "ResourceSlice":
		return "", "", apierrors.NewBadRequest(fmt.Sprintf("field label not supported for %s: %s", e.gvk, name))
	}
	return "", "", apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", name))
}

func (r *listRequest) matches(e *cache.Entry) (bool, error) {
	if !r.labels.Empty() && !r.labels.Matches(&e.Labels) {
		return false, nil
	}
	return r.matchesFields(e)
}

// matchesFields fails if the object cannot be converted to the request's version, so that the match
// is unknown.
func (r *listRequest) matchesFields(e *cache.Entry) (bool, error) {
	if r.fields.Empty() {
		return true, nil
	}
	if r.fieldsOf == nil {
		return r.fields.Matches(e.Selectable()), nil
	}
	set, err := r.fieldsOf(e)
	return err == nil && r.fields.Matches(set), err
}

// page is one answer to a list.
type page struct {
	entries   []*cache.Entry
	revision  int64
	next      string // continue token
	remaining *int64
	// whole is a prefix if the page has all objects below it; empty if some may be missing.
	whole string
	// changed is the revision of the kind's newest change.
	changed int64
	seen    int  // objects looked at
	zipped  bool // it will be sent compressed
}

func (p *page) meta() metav1.ListMeta {
	return metav1.ListMeta{ResourceVersion: strconv.FormatInt(p.revision, 10), Continue: p.next, RemainingItemCount: p.remaining}
}

// list answers from one snapshot: the newest, any, one at least as new as a resourceVersion, or
// exactly that of a resourceVersion or continue token.
func (op *operation) list(ctx context.Context, req *listRequest) (*page, error) {
	r := op.endpoint.registry
	reader, err := r.cache(ctx)
	if err != nil {
		return nil, storeError(err)
	}
	prefix := r.prefix(op.namespace)
	from, limit := prefix, req.opts.Limit
	var snapshot *cache.Snapshot
	switch rv := req.opts.ResourceVersion; {
	case req.opts.Continue != "" && rv != "" && rv != "0":
		err = apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
	case req.opts.Continue != "":
		snapshot, from, err = op.continued(ctx, reader, req, prefix)
	case rv == "0" && req.opts.ResourceVersionMatch != metav1.ResourceVersionMatchExact:
		limit = 0 // as upstream: a list of any state ignores the limit
		snapshot = reader.Snapshot()
	case rv != "" && rv != "0" && (req.opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact || req.opts.ResourceVersionMatch == "" && limit > 0):
		snapshot, err = op.exactly(ctx, reader, rv)
	default:
		if err = r.waitFresh(ctx, reader, rv); err == nil {
			snapshot = reader.Snapshot()
		}
	}
	if invalid := (*field.Error)(nil); errors.As(err, &invalid) {
		err = badRevision(err)
	}
	if err != nil {
		return nil, err
	}
	p, err := op.collect(snapshot, req, prefix, from, limit)
	if err != nil {
		return nil, err
	}
	r.reads.lists.Add(1)
	r.reads.fetched.Add(uint64(p.seen))
	r.reads.returned.Add(uint64(len(p.entries)))
	return p, nil
}

// collect takes the matching objects from the snapshot, up to the limit.
func (op *operation) collect(s *cache.Snapshot, req *listRequest, prefix, from string, limit int64) (*page, error) {
	p := &page{revision: s.Revision(), changed: s.Changed()}
	everything := req.labels.Empty() && req.fields.Empty()
	if everything && limit == 0 && from == prefix {
		p.whole = prefix
	}
	if limit == 0 && s.Len() >= manyObjects {
		p.entries = *usedEntries.Get().(*[]*cache.Entry)
	}
	if everything && limit == 0 && op.namespace == "" && cap(p.entries) < s.Len() {
		p.entries = make([]*cache.Entry, 0, s.Len())
	}
	if key, ok := op.single(req); ok && limit == 0 {
		e, found := s.Get(key)
		if !found {
			return p, nil
		}
		match, err := req.matches(e)
		if match {
			p.entries, p.seen = append(p.entries, e), 1
		}
		return p, err
	}
	more, rest := false, int64(0)
	var err error
	turns := op.endpoint.shared.turns(s.Len())
	defer turns.End()
	s.Ascend(prefix, from, func(e *cache.Entry) bool {
		turns.Step()
		p.seen++
		if limit > 0 && int64(len(p.entries)) == limit {
			if !everything {
				// As upstream, only the next page finds out whether another object matches.
				more = true
				return false
			}
			more = true
			rest++
			return true
		}
		match := everything
		if !match {
			match, err = req.matches(e)
		}
		if match {
			p.entries = append(roomFor(p.entries, s.Len()), e)
		}
		return err == nil
	})
	if err != nil {
		return nil, err
	}
	if more {
		last := p.entries[len(p.entries)-1].Key
		p.next = encodeContinue(last, prefix, s.Revision())
		if everything {
			p.remaining = &rest
		}
	}
	return p, nil
}

// usedEntries are slices of large pages that have been sent. Appending a hundred thousand entries
// leaves several times their memory as garbage, and writes wait while it is collected.
var usedEntries = sync.Pool{New: func() any { return new([]*cache.Entry) }}

// roomFor returns entries with capacity for one more, and at most for most.
func roomFor(entries []*cache.Entry, most int) []*cache.Entry {
	if n := len(entries); n == cap(entries) && n >= 1024 {
		return append(make([]*cache.Entry, 0, max(n+1, min(8*n, most))), entries...)
	}
	return entries
}

// sent returns the entries to the pool. The page must not be used any more.
func (p *page) sent() {
	if entries := p.entries; cap(entries) >= manyObjects {
		p.entries = nil
		clear(entries)
		entries = entries[:0]
		usedEntries.Put(&entries)
	}
}

// single returns the key of the only object that the field selector can match.
func (op *operation) single(req *listRequest) (string, bool) {
	if req.fields.Empty() {
		return "", false
	}
	name, ok := req.fields.RequiresExactMatch("metadata.name")
	if !ok || name == "" || op.endpoint.kind.Namespaced && op.namespace == "" {
		return "", false
	}
	return op.endpoint.key(op.namespace, name), true
}

// exactly returns the snapshot at a resourceVersion.
func (op *operation) exactly(ctx context.Context, reader cache.Reader, resourceVersion string) (*cache.Snapshot, error) {
	revision, err := parseRevision(resourceVersion)
	if err != nil {
		return nil, err
	}
	if err := op.endpoint.waitFuture(ctx, reader, revision); err != nil {
		return nil, err
	}
	s, err := reader.At(ctx, revision)
	if errors.Is(err, cache.ErrTooOld) {
		return nil, apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
	}
	if err != nil {
		return nil, storeError(err)
	}
	return s, nil
}

// continued returns the snapshot of a continue token and the key to continue from.
func (op *operation) continued(ctx context.Context, reader cache.Reader, req *listRequest, prefix string) (*cache.Snapshot, string, error) {
	from, revision, err := decodeContinue(req.opts.Continue, prefix)
	if err != nil {
		return nil, "", apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: continue key is not valid: %v", err))
	}
	if revision <= 0 {
		// An inconsistent token continues in the newest state.
		if err := op.endpoint.waitFresh(ctx, reader, ""); err != nil {
			return nil, "", err
		}
		return reader.Snapshot(), from, nil
	}
	s, err := reader.At(ctx, revision)
	if errors.Is(err, cache.ErrTooOld) {
		return nil, "", expiredContinue(from, prefix)
	}
	if err != nil {
		return nil, "", storeError(err)
	}
	return s, from, nil
}
