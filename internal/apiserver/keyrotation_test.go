package apiserver

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/store"
)

// staleStore is a store that reports all its values as stale.
type staleStore struct{ store.Store }

func (staleStore) NeedsReencryption(context.Context, string) (bool, error) { return true, nil }

func (staleStore) Collectors() []prometheus.Collector { return nil }

func (staleStore) Health(context.Context) error { return nil }

func (staleStore) OnRepair(func(context.Context, string) error) {}

func TestUnchangedObjectIsWrittenAgainAfterKeyRotation(t *testing.T) {
	s := newTestServer(t, func(c *Config) { c.Store = staleStore{c.Store} })
	c := s.Client(auth.Component("tester"))
	made, err := client.Create(t.Context(), c, configMap("one"))
	if err != nil {
		t.Fatal(err)
	}
	same, err := client.Update(t.Context(), c, made.DeepCopy())
	if err != nil || same.ResourceVersion == made.ResourceVersion {
		t.Errorf("the object was not written: %v", err)
	}
}
