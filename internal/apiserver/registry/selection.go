package registry

import (
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	listvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/knarr-project/knarr/internal/cache"
)

// ListRequest is the parsed options of a list or watch.
type ListRequest struct {
	Opts   metav1.ListOptions
	Labels labels.Selector
	Fields fields.Selector
	// FieldsOf is set if the cache entries' headers lack the selected fields: those of custom
	// resources in the request's version.
	FieldsOf func(*cache.Entry) (fields.Set, error)
}

// NewListRequest parses the selectors and validates the options by upstream's rules.
func (e *Endpoint) NewListRequest(opts metav1.ListOptions) (*ListRequest, error) {
	req := &ListRequest{Opts: opts, Labels: labels.Everything(), Fields: fields.Everything()}
	var err error
	if opts.LabelSelector != "" {
		if req.Labels, err = labels.Parse(opts.LabelSelector); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	if opts.FieldSelector != "" {
		if req.Fields, err = fields.ParseSelector(opts.FieldSelector); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		req.Fields, err = req.Fields.Transform(e.selectable)
		if err != nil {
			return nil, err
		}
	}
	if e.Custom != nil {
		req.FieldsOf = e.customFields(req.Fields)
	}
	internal := &internalversion.ListOptions{
		LabelSelector: req.Labels, FieldSelector: req.Fields, Watch: opts.Watch, AllowWatchBookmarks: opts.AllowWatchBookmarks,
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
func (e *Endpoint) selectable(name, value string) (string, string, error) {
	strategy := e.Strategy
	switch {
	case e.GVK.Group == "events.k8s.io" && slices.Contains(coreEventFields, strings.SplitN(name, ".", 2)[0]):
	case name == "metadata.name", name == "metadata.namespace" && (e.Kind.Namespaced || len(strategy.FieldNames) == 0 && e.Custom == nil), slices.Contains(strategy.FieldNames, name):
		return name, value, nil
	case strategy.FieldAliases[name] != "":
		return strategy.FieldAliases[name], value, nil
	case e.Custom != nil:
	case len(strategy.FieldNames) == 0:
		return "", "", apierrors.NewBadRequest(fmt.Sprintf("%q is not a known field selector: only \"metadata.name\", \"metadata.namespace\"", name))
	}
	switch e.GVK.Kind {
	case "Job":
		return "", "", apierrors.NewBadRequest(fmt.Sprintf("field label %q not supported for Job", name))
	case "ResourceSlice":
		return "", "", apierrors.NewBadRequest(fmt.Sprintf("field label not supported for %s: %s", e.GVK, name))
	}
	return "", "", apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", name))
}

// Matches reports whether the selectors match an entry.
func (r *ListRequest) Matches(e *cache.Entry) (bool, error) {
	if !r.Labels.Empty() && !r.Labels.Matches(&e.Labels) {
		return false, nil
	}
	return r.matchesFields(e)
}

// matchesFields fails if the object cannot be converted to the request's version, so that the match
// is unknown.
func (r *ListRequest) matchesFields(e *cache.Entry) (bool, error) {
	if r.Fields.Empty() {
		return true, nil
	}
	if r.FieldsOf == nil {
		return r.Fields.Matches(e.Selectable()), nil
	}
	set, err := r.FieldsOf(e)
	return err == nil && r.Fields.Matches(set), err
}
