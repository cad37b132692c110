package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/cache"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/store"
)

// Identity is the store's record of the cluster that it belongs to. A server with other keys is
// refused: it would issue certificates and tokens that the others do not accept.
type Identity struct {
	// CAs are hashes of the public keys of the cluster's CAs, as in join tokens. During a rotation
	// there are two.
	CAs []string `json:"cas"`
	// ServiceAccountKeys are hashes of the public keys whose service account tokens are accepted.
	ServiceAccountKeys []string `json:"serviceAccountKeys"`

	ServiceCIDR   string `json:"serviceCIDR"`
	ClusterDomain string `json:"clusterDomain"`
}

// identityKey is the key of the record in the store. Clusters that share an outside etcd have
// different prefixes.
func identityKey(cfg *config.Config) string { return knarrKey(cfg, "identity") }

// knarrKey is a key of knarr's own data in the store, beside that of the API.
func knarrKey(cfg *config.Config, name string) string {
	if root := cfg.StoreRoot(); root != strings.TrimSuffix(cache.Root, "/") {
		return "/knarr" + root + "/" + name
	}
	return "/knarr/" + name
}

// ownIdentity returns the identity according to this server's keys and settings.
func ownIdentity(keys *pki.PKI, accounts *pki.SigningKeys, cfg *config.Config) (Identity, error) {
	own := Identity{ServiceCIDR: cfg.ServiceCIDR, ClusterDomain: cfg.ClusterDomain}
	for _, ca := range keys.CA.Certificates() {
		own.CAs = append(own.CAs, pki.CertificateHash(ca))
	}
	slices.Sort(own.CAs)
	if accounts == nil {
		return own, nil // another process signs tokens
	}
	for _, key := range accounts.Verifiers {
		hash, err := pki.KeyHash(key)
		if err != nil {
			return Identity{}, fmt.Errorf("service account key: %w", err)
		}
		own.ServiceAccountKeys = append(own.ServiceAccountKeys, hash)
	}
	slices.Sort(own.ServiceAccountKeys)
	return own, nil
}

// differences compares own with the store's record. Keys differ if the two have no key in common.
func (own Identity) differences(stored Identity) (keys, settings []string) {
	common := func(a, b []string) bool {
		return slices.ContainsFunc(a, func(one string) bool { return slices.Contains(b, one) })
	}
	if !common(own.CAs, stored.CAs) {
		keys = append(keys, fmt.Sprintf("the CA in pki/ca.crt has the hash %s, the cluster's %s", strings.Join(own.CAs, ", "), strings.Join(stored.CAs, ", ")))
	}
	if len(own.ServiceAccountKeys) > 0 && len(stored.ServiceAccountKeys) > 0 && !common(own.ServiceAccountKeys, stored.ServiceAccountKeys) {
		keys = append(keys, "the service account keys (pki/sa.pub) have no key of the cluster")
	}
	for _, one := range []struct{ flag, own, stored string }{
		{"service-cidr", own.ServiceCIDR, stored.ServiceCIDR}, {"cluster-domain", own.ClusterDomain, stored.ClusterDomain},
	} {
		if one.own != one.stored {
			settings = append(settings, fmt.Sprintf("--%s is %q here and %q in the cluster", one.flag, one.own, one.stored))
		}
	}
	return keys, settings
}

// UpdateIdentity changes the store's record of the cluster's identity atomically, for a rotation of
// keys. The record may be empty. All servers must accept the new keys before the old ones leave it.
func UpdateIdentity(ctx context.Context, db store.Store, cfg *config.Config, change func(*Identity)) error {
	key := identityKey(cfg)
	for {
		stored, revision, err := readIdentity(ctx, db, key)
		if err != nil {
			return err
		}
		change(&stored)
		if done, err := writeIdentity(ctx, db, key, revision, stored); err != nil || done {
			return err
		}
	}
}

// readIdentity returns the record and its revision, 0 if there is none.
func readIdentity(ctx context.Context, db store.Store, key string) (Identity, int64, error) {
	kv, _, err := db.Get(ctx, key, 0)
	if err != nil || kv == nil {
		return Identity{}, 0, err
	}
	var stored Identity
	if err := json.Unmarshal(kv.Value, &stored); err != nil {
		return Identity{}, 0, fmt.Errorf("the cluster's identity in the store (%s): %w", key, err)
	}
	return stored, kv.ModRevision, nil
}

// writeIdentity writes the record unless it has changed since revision.
func writeIdentity(ctx context.Context, db store.Store, key string, revision int64, record Identity) (done bool, err error) {
	value, err := json.Marshal(record)
	if err != nil {
		return false, err
	}
	result, err := db.Commit(ctx, []store.Condition{{Key: key, ModRevision: revision}}, store.Op{Key: key, Value: value})
	if err != nil {
		return false, fmt.Errorf("record the cluster's identity: %w", err)
	}
	return result.Succeeded, nil
}

// agreeOnIdentity compares the server's identity with the store's record, and writes the record if
// there is none. alone means that no other server uses the store: then the record follows the keys
// and settings, as after a restore on another machine, and replaced lists the keys that differed.
func agreeOnIdentity(ctx context.Context, db store.Store, cfg *config.Config, own Identity, alone bool) (replaced []string, err error) {
	key := identityKey(cfg)
	for {
		stored, revision, err := readIdentity(ctx, db, key)
		if err != nil {
			return nil, err
		}
		record := own
		if revision != 0 {
			keys, settings := own.differences(stored)
			if len(keys)+len(settings) > 0 && !alone {
				return nil, refusal(cfg, key, keys, settings)
			}
			if replaced = keys; len(keys) == 0 {
				record = own.after(stored)
			}
			if record.equal(stored) {
				return nil, nil
			}
		}
		if done, err := writeIdentity(ctx, db, key, revision, record); err != nil || done {
			return replaced, err
		}
	}
}

// after adds the record's keys, because another server may be about to use or to drop them.
func (own Identity) after(stored Identity) Identity {
	own.CAs = stored.CAs
	own.ServiceAccountKeys = slices.Compact(slices.Sorted(slices.Values(slices.Concat(own.ServiceAccountKeys, stored.ServiceAccountKeys))))
	return own
}

func (own Identity) equal(other Identity) bool {
	return slices.Equal(own.CAs, other.CAs) && slices.Equal(own.ServiceAccountKeys, other.ServiceAccountKeys) &&
		own.ServiceCIDR == other.ServiceCIDR && own.ClusterDomain == other.ClusterDomain
}

// checkIdentity refuses a store that belongs to a cluster with other keys.
func (s *Server) checkIdentity(ctx context.Context) error {
	var accounts *pki.SigningKeys
	if c := &s.cfg.APIServer.ServiceAccounts; c.SigningEndpoint == "" {
		var err error
		if accounts, err = s.keys.ServiceAccount.Keys().With(c.SigningKeyFile, c.KeyFiles); err != nil {
			return err
		}
	}
	own, err := ownIdentity(s.keys, accounts, s.cfg)
	if err != nil {
		return err
	}
	replaced, err := agreeOnIdentity(ctx, s.raw, s.cfg, own, s.aloneOnStore())
	if len(replaced) > 0 {
		s.log.Warn("the store was served with other keys before: nodes have to join again, and service accounts' tokens are issued anew", "component", "store", "differences", strings.Join(replaced, "; "))
	}
	return err
}

// refusal explains why this server cannot use the store, and the remedy.
func refusal(cfg *config.Config, key string, keys, settings []string) error {
	if len(keys) > 0 {
		remedy := "Join the cluster with an empty data folder: `knarr token create --server` on a server, then here `knarr server --join URL --token-file FILE`"
		if !cfg.SharesStore() {
			return fmt.Errorf("this store belongs to a cluster with other keys: %s. %s", strings.Join(keys, "; "), remedy)
		}
		return fmt.Errorf("this store belongs to a cluster with other keys: %s. %s with the same --store. "+
			"A new cluster beside it needs another --etcd-prefix. If the cluster's keys are lost for good, stop all servers and delete the key %s with etcdctl",
			strings.Join(keys, "; "), remedy, key)
	}
	text := "settings that all servers share differ: " + strings.Join(settings, "; ") + ". Give the cluster's values"
	if cfg.SharesStore() {
		text += "; to change them, stop all servers and delete the key " + key + " with etcdctl"
	}
	return errors.New(text)
}
