package run

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/egress"
	"github.com/knarr-project/knarr/internal/store"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// alongside runs parts until ctx ends or one of them fails, and returns when all have ended.
func alongside(ctx context.Context, parts ...func(context.Context) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, part := range parts {
		g.Go(func() error { return part(ctx) })
	}
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// background makes a part of what only ends with its context.
func background(run func(context.Context)) func(context.Context) error {
	return func(ctx context.Context) error { run(ctx); return nil }
}

// viaEgress connects to an outside etcd the way that the file says, if it says one.
func viaEgress(s *egress.Selector) []grpc.DialOption {
	dial := s.To(egress.Etcd)
	if dial == nil {
		return nil
	}
	return []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, "tcp", address) })}
}

// connectStore reaches an outside etcd, with TLS when its URLs or the flags ask for it.
func connectStore(ctx context.Context, cfg *config.Config, dial ...grpc.DialOption) (store.Store, error) {
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
	return etcd.Connect(ctx, etcd.RemoteOptions{Endpoints: cfg.StoreEndpoints, TLS: tlsConfig, Dial: dial})
}
