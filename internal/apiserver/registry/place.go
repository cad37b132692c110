package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/telemetry"
	"github.com/knarr-project/knarr/internal/cache"
	"github.com/knarr-project/knarr/internal/store"
)

// Condition reports whether the store answers.
func (p *Place) Condition(ctx context.Context) corev1.ComponentCondition {
	if _, err := p.Store.Revision(ctx); err != nil {
		return corev1.ComponentCondition{Status: corev1.ConditionFalse, Error: err.Error()}
	}
	return corev1.ComponentCondition{Status: corev1.ConditionTrue, Message: "ok"}
}

// Override stores some built-in kinds outside Config.Store (upstream's --etcd-servers-overrides).
type Override struct {
	Store store.Store
	// Resources are the kinds in this store; the resource "*" stands for the kinds of a group that
	// no other Override names.
	Resources []schema.GroupResource
}

// Place is a store with its cache and leases. Revisions of different places cannot be compared.
type Place struct {
	Raw    store.Store
	Store  store.Store // Raw with metrics; it honours the fences of leaders
	Cache  *cache.Cache
	leases leases
}

// newPlace opens a place. Its number is its index in Shared.Places.
func newPlace(under store.Store, number int, m *telemetry.StoreMetrics) *Place {
	counted := telemetry.Instrument(store.Fenced(under, number), m)
	return &Place{Raw: under, Store: counted, Cache: cache.New(counted)}
}

// storedTogether are the kinds that are written together, and so need one store: a Service with
// its addresses and node ports.
var storedTogether = []schema.GroupResource{{Resource: "services"}, {Group: "networking.k8s.io", Resource: "ipaddresses"}, {Group: "networking.k8s.io", Resource: "servicecidrs"}}

// Open creates the places. The first is the home of all kinds that no other place names.
func (s *Shared) Open(home store.Store, others []Override) error {
	s.Home = newPlace(home, 0, s.Store)
	s.Places, s.placesByPrefix = []*Place{s.Home}, map[string]*Place{}
	named := map[schema.GroupResource]*Place{}
	for _, given := range others {
		at := newPlace(given.Store, len(s.Places), s.Store)
		s.Places = append(s.Places, at)
		for _, resource := range given.Resources {
			if err := checkOverride(resource); err != nil {
				return fmt.Errorf("etcd-servers-overrides: %s/%s: %w", resource.Group, resource.Resource, err)
			}
			named[resource] = at
		}
	}
	for _, kind := range api.Kinds() {
		if kind.Virtual || kind.Alias.Resource != "" {
			continue
		}
		all := schema.GroupResource{Group: kind.Kind.Group, Resource: "*"}
		if at := cmp.Or(named[kind.GroupResource()], named[all]); at != nil {
			s.placesByPrefix[kind.Prefix] = at
		}
	}
	return nil
}

// checkOverride returns why a resource cannot be stored in a place of its own, or nil.
func checkOverride(resource schema.GroupResource) error {
	why := errors.New("not a stored built-in kind; custom resources are stored in --etcd-servers")
	for _, kind := range api.Kinds() {
		gr := kind.GroupResource()
		if kind.Virtual || gr.Group != resource.Group || gr.Resource != resource.Resource && resource.Resource != "*" {
			continue
		}
		switch {
		case slices.Contains(storedTogether, gr):
			return errors.New("Services, IPAddresses and ServiceCIDRs are written in one transaction, and stay in --etcd-servers")
		case kind.Alias.Resource != "":
			why = fmt.Errorf("the same objects as %s/%s: name that resource", kind.Alias.Group, kind.Alias.Resource)
		default:
			why = nil
		}
	}
	return why
}

// placeFor returns the place of the objects below a key prefix.
func (s *Shared) placeFor(prefix string) *Place {
	return cmp.Or(s.placesByPrefix[prefix], s.Home)
}

// Relist reads the objects below a prefix again.
func (s *Shared) Relist(ctx context.Context, prefix string) error {
	return s.placeFor(prefix).Cache.Relist(ctx, prefix)
}

// CatchUpAll waits until the caches of all places contain everything that was committed before the
// call.
func (s *Shared) CatchUpAll(ctx context.Context) error {
	for _, at := range s.Places {
		revision, err := at.Store.Revision(ctx)
		if err != nil {
			return err
		}
		if err := at.Cache.WaitFor(ctx, revision); err != nil {
			return err
		}
	}
	return nil
}
