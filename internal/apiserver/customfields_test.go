package apiserver

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/cache"
)

func TestConversionErrorsInSelectorsAreReported(t *testing.T) {
	broken := errors.New("the webhook is unavailable")
	req := &registry.ListRequest{Labels: labels.Everything(), Fields: fields.OneTermEqualSelector("spec.flag", "no"), FieldsOf: func(e *cache.Entry) (fields.Set, error) {
		if e.Name == "broken" {
			return nil, broken
		}
		return fields.Set{"spec.flag": e.Labels.Get("flag")}, nil
	}}
	entry := func(name, flag string) *cache.Entry {
		return &cache.Entry{Header: cache.Header{Name: name, Labels: cache.PairsOf(map[string]string{"flag": flag})}}
	}
	if _, err := req.Matches(entry("broken", "no")); !errors.Is(err, broken) {
		t.Errorf("in a list: %v", err)
	}
	for name, change := range map[string]cache.Change{
		"the new object": {Type: cache.Modified, Old: entry("fram", "no"), Entry: entry("broken", "no")},
		"the old object": {Type: cache.Deleted, Old: entry("broken", "no"), Entry: entry("fram", "no")},
	} {
		if _, err := req.Narrow([]cache.Change{change}); !errors.Is(err, broken) {
			t.Errorf("in a watch, %s: %v", name, err)
		}
	}
	changes, err := req.Narrow([]cache.Change{
		{Type: cache.Modified, Old: entry("fram", "se"), Entry: entry("fram", "no")},
		{Type: cache.Modified, Old: entry("fram", "se"), Entry: entry("fram", "dk")},
		{Type: cache.Deleted, Old: entry("fram", "no"), Entry: entry("fram", "no")},
	})
	if err != nil || len(changes) != 2 || changes[0].Type != cache.Added || changes[1].Type != cache.Deleted {
		t.Errorf("%v, %v", changes, err)
	}
}
