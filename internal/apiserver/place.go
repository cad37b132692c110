package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/cache"
	"github.com/knarr-project/knarr/internal/store"
)

// Place stores some built-in kinds outside Config.Store (upstream's --etcd-servers-overrides).
type Place struct {
	Store store.Store
	// Resources are the kinds in this store; the resource "*" stands for the kinds of a group that
	// no other Place names.
	Resources []schema.GroupResource
}

// place is a store with its cache and leases. Revisions of different places cannot be compared.
type place struct {
	given  store.Store
	store  store.Store // given with metrics
	cache  *cache.Cache
	leases leases
}

func newPlace(under store.Store, m *storeMetrics) *place {
	counted := instrument(under, m)
	return &place{given: under, store: counted, cache: cache.New(counted)}
}

// inOneTransaction are the kinds that are written together, and so need one store: a Service with
// its addresses and node ports.
var inOneTransaction = []schema.GroupResource{{Resource: "services"}, {Group: "networking.k8s.io", Resource: "ipaddresses"}, {Group: "networking.k8s.io", Resource: "servicecidrs"}}

// open creates the places. The first is the home of all kinds that no other place names.
func (s *shared) open(home store.Store, others []Place) error {
	s.home = newPlace(home, s.store)
	s.places, s.elsewhere = []*place{s.home}, map[string]*place{}
	named := map[schema.GroupResource]*place{}
	for _, given := range others {
		at := newPlace(given.Store, s.store)
		s.places = append(s.places, at)
		for _, resource := range given.Resources {
			if err := movable(resource); err != nil {
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
			s.elsewhere[kind.Prefix] = at
		}
	}
	return nil
}

// movable returns why a resource cannot be stored in a place of its own, or nil.
func movable(resource schema.GroupResource) error {
	why := errors.New("no built-in kind that is stored; custom resources lie in the store of --etcd-servers")
	for _, kind := range api.Kinds() {
		gr := kind.GroupResource()
		if kind.Virtual || gr.Group != resource.Group || gr.Resource != resource.Resource && resource.Resource != "*" {
			continue
		}
		switch {
		case slices.Contains(inOneTransaction, gr):
			return errors.New("a Service, its addresses and the ranges that they are of are written in one transaction, and stay in the store of --etcd-servers")
		case kind.Alias.Resource != "":
			why = fmt.Errorf("these objects are those of %s/%s: name that", kind.Alias.Group, kind.Alias.Resource)
		default:
			why = nil
		}
	}
	return why
}

// placeOf returns the place of the objects below a key prefix.
func (s *shared) placeOf(prefix string) *place {
	return cmp.Or(s.elsewhere[prefix], s.home)
}

// relist reads the objects below a prefix again.
func (s *shared) relist(ctx context.Context, prefix string) error {
	return s.placeOf(prefix).cache.Relist(ctx, prefix)
}
