package controlplane

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/auth/rotation"
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
// etcd have them apart (knarrKey).
func (s *Server) ownStore() store.Store { return store.Reroot(s.raw, "/knarr/", knarrKey(s.cfg, "")) }

// openRotation applies the cluster's decisions about authorities and keys, before anything uses
// the keys. A server that was down meanwhile has missed some.
func (s *Server) openRotation(ctx context.Context) error {
	s.rotation = &rotation.Manager{
		Store: s.ownStore(), Keys: s.keys, Dir: s.cfg.Path("pki"), Server: s.cfg.NodeName,
		Inventory: s.inventory, Applied: s.keysChanged, Clock: s.keyClock(), Log: s.log.With("component", "keys"),
		Alone: s.aloneOnStore, Encryption: managedKeys{s},
	}
	if s.members != nil {
		s.rotation.Members = s.memberNames
	}
	if s.keys.PeerCA != nil {
		// The engine has read the CA before this. It reads certificates for each connection.
		loaded := []string{}
		for _, c := range s.keys.PeerCA.Certificates() {
			loaded = append(loaded, pki.CertificateHash(c))
		}
		s.rotation.Loaded = map[string][]string{rotation.Etcd: loaded}
	}
	if err := s.rotation.Apply(ctx); err != nil {
		return fmt.Errorf("this server's keys are not the cluster's: %w", err)
	}
	return s.rotateIdentity(ctx)
}

// memberNames returns the names of the servers that hold the store.
func (s *Server) memberNames(ctx context.Context) ([]string, error) {
	members, err := s.members.Members(ctx)
	var names []string
	for _, m := range members {
		if m.Name != "" { // else it has not started yet, and takes the present keys when it does
			names = append(names, m.Name)
		}
	}
	return names, err
}

// rotateIdentity adds the keys that this server has to the cluster's identity, and removes those
// that a rotation has ended the trust in.
func (s *Server) rotateIdentity(ctx context.Context) error {
	if s.rotation.Generation(rotation.Kubernetes) == 0 && s.rotation.Generation(rotation.ServiceAccounts) == 0 {
		return nil
	}
	var cas, accounts []string
	for _, c := range s.keys.CA.Certificates() {
		cas = append(cas, pki.CertificateHash(c))
	}
	for _, key := range s.keys.ServiceAccount.Keys().Verifiers {
		hash, err := pki.KeyHash(key)
		if err != nil {
			return err
		}
		accounts = append(accounts, hash)
	}
	merge := func(have, own []string) []string {
		have = slices.DeleteFunc(slices.Concat(have, own), s.rotation.Removed)
		slices.Sort(have)
		return slices.Compact(have)
	}
	return UpdateIdentity(ctx, s.raw, s.cfg, func(i *Identity) {
		if i.ServiceCIDR == "" { // the record is new
			i.ServiceCIDR, i.ClusterDomain = s.cfg.ServiceCIDR, s.cfg.ClusterDomain
		}
		i.CAs = merge(i.CAs, cas)
		if s.rotatable(rotation.ServiceAccounts) == nil {
			i.ServiceAccountKeys = merge(i.ServiceAccountKeys, accounts)
		}
	})
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
	errs = append(errs, s.rotateIdentity(ctx))
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
