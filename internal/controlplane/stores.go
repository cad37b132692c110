package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/apiserver/encryption"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/cache"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/egress"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// openStores opens the main store and those of other places. After an error, opened stores stay
// open.
func (s *Server) openStores(ctx context.Context) error {
	root := strings.TrimSuffix(cache.Root, "/")
	dial := append(s.tracer.DialOptions(), viaEgress(s.egress)...)
	var err error
	if len(s.cfg.StoreEndpoints) > 0 {
		s.db, err = connectStore(ctx, s.cfg, s.cfg.StoreEndpoints, dial...)
	} else {
		var engine *etcd.Engine
		if engine, err = s.openEmbedded(ctx); err == nil {
			s.db, s.engine, s.members, s.engineDone = engine, engine, engine, engine.Done()
		}
	}
	if err != nil {
		s.db = nil // a nil interface, not an interface with a nil store
		return err
	}
	s.alone = alone(s.db)
	s.raw = s.db
	s.db = store.Reroot(s.db, root, s.cfg.StoreRoot())
	beside := func(under store.Store) store.Store { return under }
	if file := s.cfg.APIServer.EncryptionConfig; file != "" {
		sealed, err := encryption.Wrap(ctx, s.db, file, s.cfg.APIServer.EncryptionReload, s.log.With("component", "encryption"))
		if err != nil {
			return err
		}
		s.db = sealed
		beside = func(under store.Store) store.Store { return sealed.Beside(under) }
	}
	for _, override := range s.cfg.Overrides() {
		db, err := connectStore(ctx, s.cfg, override.Endpoints, dial...)
		if err != nil {
			return fmt.Errorf("etcd-servers-overrides: %w", err)
		}
		place := registry.Override{Store: beside(store.Reroot(db, root, s.cfg.StoreRoot()))}
		for _, kind := range override.Kinds {
			place.Resources = append(place.Resources, schema.GroupResource{Group: kind.Group, Resource: kind.Resource})
		}
		s.places = append(s.places, place)
	}
	return nil
}

// alone returns a function that reports whether no other server uses the store now. An embedded
// store knows its members. An outside etcd may have other users at any time.
func alone(db store.Store) func() bool {
	switch db := db.(type) {
	case interface{ Alone() bool }:
		return db.Alone
	case *etcd.Remote:
		return func() bool { return false }
	}
	return func() bool { return true }
}

// closeStores closes the open stores, the main one last.
func (s *Server) closeStores() error {
	var errs []error
	for _, place := range s.places {
		errs = append(errs, place.Store.Close())
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	return errors.Join(errs...)
}

// viaEgress returns options for connecting to an outside etcd through the configured proxy, if any.
func viaEgress(s *egress.Selector) []grpc.DialOption {
	dial := s.To(egress.Etcd)
	if dial == nil {
		return nil
	}
	return []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, "tcp", address) })}
}

// connectStore connects to an outside etcd, with TLS if its URLs or the flags require it.
func connectStore(ctx context.Context, cfg *config.Config, endpoints []string, dial ...grpc.DialOption) (store.Store, error) {
	var tlsConfig *tls.Config
	if cfg.StoreCA != "" {
		pem, err := os.ReadFile(cfg.StoreCA)
		if err != nil {
			return nil, fmt.Errorf("store-ca: %w", err)
		}
		tlsConfig = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
		if !tlsConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("store-ca: %s holds no certificate", cfg.StoreCA)
		}
	}
	if cfg.StoreCert != "" {
		pair, err := tls.LoadX509KeyPair(cfg.StoreCert, cfg.StoreKey)
		if err != nil {
			return nil, fmt.Errorf("store-cert, store-key: %w", err)
		}
		if tlsConfig == nil {
			tlsConfig = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		tlsConfig.Certificates = []tls.Certificate{pair}
	}
	return etcd.Connect(ctx, etcd.RemoteOptions{Endpoints: endpoints, TLS: tlsConfig, Dial: dial})
}
