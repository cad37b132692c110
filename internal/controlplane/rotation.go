package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/auth/rotation"
	"github.com/knarr-project/knarr/internal/cache"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/clusterinfo"
	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/store"
)

// keyClock is the clock of certificates.
func (s *Server) keyClock() clock.WithTicker {
	if s.ticks == nil {
		return clock.RealClock{}
	}
	return s.ticks
}

// ownStore returns the store with knarr's own keys, /knarr/... . Clusters that share an outside
// etcd have them apart, as they have /registry.
func (s *Server) ownStore() store.Store {
	const prefix = "/knarr/"
	if root := s.cfg.StoreRoot(); root+"/" != cache.Root {
		return store.Reroot(s.db, prefix, "/knarr"+root+"/")
	}
	return s.db
}

// openRotation applies the cluster's decisions about authorities and keys, before anything uses
// the keys. A server that was down meanwhile has missed some.
func (s *Server) openRotation(ctx context.Context) error {
	s.rotation = &rotation.Manager{
		Store: s.ownStore(), Keys: s.keys, Dir: s.cfg.Path("pki"), Server: s.cfg.NodeName,
		Inventory: s.inventory, Applied: s.keysChanged, Clock: s.keyClock(), Log: s.log.With("component", "keys"),
	}
	if err := s.rotation.Apply(ctx); err != nil {
		return fmt.Errorf("this server's keys are not the cluster's: %w", err)
	}
	return nil
}

// inventory lists this server's certificates and keys.
func (s *Server) inventory() []pki.Entry {
	entries, err := pki.Inventory(s.cfg.Path("pki"), s.cfg.AdminKubeconfig())
	if err != nil {
		s.log.Warn("cannot list this server's certificates", "component", "keys", "error", err)
	}
	return entries
}

// news is a channel that is closed at the next change. The zero news is usable.
type news struct {
	mu sync.Mutex
	ch chan struct{}
}

func (n *news) load() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	return n.ch
}

func (n *news) spread() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
}

// authority returns the cluster's CA for controllers.
func (s *Server) authority() controller.Authority {
	ca := s.keys.CA
	changed := s.keysNews.load() // before the values are read
	signer := ca.Signer()
	return controller.Authority{CACert: ca.Bundle(), SigningCert: signer.CertPEM, SigningKey: signer.KeyPEM, Chain: ca.Cross(), Changed: changed}
}

// keysChanged gives changed keys to the parts that do not read them by themselves. It runs after
// each change, and at the start.
func (s *Server) keysChanged(ctx context.Context) error {
	var errs []error
	if s.signer == nil {
		c := &s.cfg.APIServer.ServiceAccounts
		keys, err := s.keys.ServiceAccount.Keys().With(c.SigningKeyFile, c.KeyFiles)
		if err == nil {
			err = s.tokens.Use(keys)
		}
		errs = append(errs, err)
	}
	s.keysNews.spread()
	generation := s.rotation.Generation(rotation.Kubernetes)
	errs = append(errs,
		clusterinfo.PublishAuthorities(ctx, s.own(), clusterinfo.Authorities{Bundle: string(s.keys.CA.Bundle()), Generation: generation}),
		s.publishClusterInfo(ctx))
	return errors.Join(errs...)
}

// publishClusterInfo writes the CAs into ConfigMap kube-public/cluster-info, which clusters of
// kubeadm have for joining machines.
func (s *Server) publishClusterInfo(ctx context.Context) error {
	const name, key = "cluster-info", "kubeconfig"
	have, err := client.Get[*corev1.ConfigMap](ctx, s.own(), metav1.NamespacePublic, name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	config, err := clientcmd.Load([]byte(have.Data[key]))
	if err != nil || len(config.Clusters) == 0 {
		return nil // somebody else's
	}
	same := true
	for _, cluster := range config.Clusters {
		if !bytes.Equal(cluster.CertificateAuthorityData, s.keys.CA.Bundle()) {
			cluster.CertificateAuthorityData, same = s.keys.CA.Bundle(), false
		}
	}
	if same {
		return nil
	}
	data, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	update := have.DeepCopy()
	update.Data[key] = string(data)
	_, err = client.Update(ctx, s.own(), update)
	return err
}
