package registry

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/knarr-project/knarr/internal/cache"
)

// customFields returns a function for the selectable fields of an entry; nil if the selector needs
// only names, which every entry's header has. The fields are those of the request's version, which
// conversion and defaults may change from the stored ones.
func (e *Endpoint) customFields(selector fields.Selector) func(*cache.Entry) (fields.Set, error) {
	inHeader := true
	for _, r := range selector.Requirements() {
		inHeader = inHeader && strings.HasPrefix(r.Field, "metadata.")
	}
	if inHeader {
		return nil
	}
	return func(entry *cache.Entry) (fields.Set, error) {
		obj, err := e.ObjectOf(entry)
		if err != nil {
			return nil, err
		}
		return e.Custom.Fields(obj.(*unstructured.Unstructured)), nil
	}
}

// Narrow keeps the changes that a watcher with the request's field selector sees: an object that
// begins to match is added, one that no longer matches is deleted.
func (r *ListRequest) Narrow(changes []cache.Change) ([]cache.Change, error) {
	out := changes[:0]
	for _, c := range changes {
		var before, after bool
		var err error
		if c.Type != cache.Added && c.Old != nil {
			before, err = r.matchesFields(c.Old)
		}
		if c.Type != cache.Deleted && err == nil {
			after, err = r.matchesFields(c.Entry)
		}
		if err != nil {
			return nil, err
		}
		switch {
		case before && after:
		case after:
			c.Type = cache.Added
		case before && c.Type == cache.Modified:
			c.Type, c.Entry = cache.Deleted, c.Old.Restamp(c.Revision)
		case before:
		default:
			continue
		}
		out = append(out, c)
	}
	return out, nil
}
