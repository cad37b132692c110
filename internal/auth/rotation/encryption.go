package rotation

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apiserverconfig "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"sigs.k8s.io/yaml"
)

// EncryptionKeys is a server's encryption of the store.
type EncryptionKeys interface {
	// Configuration returns the EncryptionConfiguration in use. The error is the reason why knarr
	// does not change it: there is none, or an administrator's flag names it.
	Configuration() ([]byte, error)
	// Use stores another configuration on the disk and uses it. When it returns, no write that was
	// encrypted with the earlier one is under way.
	Use(ctx context.Context, config []byte) error
}

// Uses of the configurations in a Record of Encryption (Record.Keys). That of a phase has the
// phase's name.
const (
	configSettled = "settled"
	configBefore  = "before"  // to which Abort goes back
	configArchive = "archive" // reads with all keys that there ever were
)

// sealedConfig is the purpose of the seal of configurations.
const sealedConfig = "encryption configuration"

var errNotEncrypted = errors.New("this server encrypts nothing: --encryption-provider-config is not set")

// use returns the name of the configuration that belongs to the Record's phase.
func (r *Record) use() string {
	if r.Phase == Settled {
		return configSettled
	}
	return string(r.Phase)
}

// encryptAs makes the server's encryption what the Record says.
func (m *Manager) encryptAs(ctx context.Context, r *Record) error {
	if m.Encryption == nil {
		return errNotEncrypted
	}
	config, err := m.Keys.Seal.Open(sealedConfig, r.Keys[r.use()])
	if err != nil {
		return err
	}
	return m.Encryption.Use(ctx, config)
}

// encryptionState returns the hash of the configuration in use, or the reason why knarr cannot
// change it.
func (m *Manager) encryptionState() (hash, unmanaged string) {
	if m.Encryption == nil {
		return "", errNotEncrypted.Error()
	}
	config, err := m.Encryption.Configuration()
	if err != nil {
		return "", err.Error()
	}
	sum := sha256.Sum256(config)
	return hex.EncodeToString(sum[:]), ""
}

// beginEncryption returns the Record of Trusting, with a new key. All servers must have the same
// configuration, because each gets this server's with the new key.
func (m *Manager) beginEncryption(ctx context.Context, before *Record) (*Record, error) {
	own, unmanaged := m.encryptionState()
	if unmanaged != "" {
		return nil, fmt.Errorf("server %s: %s", m.Server, unmanaged)
	}
	reports, err := m.Reports(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range reports {
		switch {
		case r.Server == m.Server || r.Encryption == own:
		case r.Unmanaged != "":
			return nil, fmt.Errorf("server %s: %s", r.Server, r.Unmanaged)
		case r.Encryption == "":
			return nil, fmt.Errorf("server %s has not told its encryption configuration: it must run, with this version of knarr", r.Server)
		default:
			return nil, fmt.Errorf("server %s has another encryption configuration than server %s, or had at its last report of %s: make the two files equal and start it again",
				r.Server, m.Server, r.Seen.UTC().Format(time.RFC3339))
		}
	}
	config, err := m.Encryption.Configuration()
	if err != nil {
		return nil, err
	}
	archive := []byte(nil)
	r := &Record{Name: Encryption, Generation: 1, Phase: Trusting, Keys: map[string][]byte{}, Seal: m.Keys.Seal.ID(), Changed: m.Clock.Now().UTC()}
	if before != nil {
		r.Generation = before.Generation + 1
		if archive, err = m.Keys.Seal.Open(sealedConfig, before.Keys[configArchive]); err != nil {
			return nil, err
		}
	}
	name, all, err := withNewKey(config, archive, m.Clock.Now())
	if err != nil {
		return nil, err
	}
	r.New = name
	for use, config := range all {
		if r.Keys[use], err = m.Keys.Seal.Close(sealedConfig, config); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// advanceEncryption makes the Record, whose generation is new already, that of the step's end.
func (r *Record) advanceEncryption(step Step) {
	settled := configSettled
	switch step {
	case Switch:
		r.Phase = Signing
		return
	case Abort:
		settled = configBefore
	}
	archive := r.Keys[configArchive]
	if step == Abort {
		archive = r.Keys[configBefore+configArchive]
	}
	r.Phase, r.New = Settled, ""
	r.Keys = map[string][]byte{configSettled: r.Keys[settled], configArchive: archive}
}

// reopened returns the Record for a store that is older than r: the present key writes, and all
// keys that there ever were read, until the values are encrypted again.
func (r *Record) reopened(now time.Time) *Record {
	next := *r
	next.Generation, next.Changed, next.Phase, next.New = r.Generation+1, now.UTC(), Signing, "(the present key)"
	settled := r.Keys[r.use()]
	next.Keys = map[string][]byte{string(Signing): r.Keys[configArchive], configSettled: settled, configArchive: r.Keys[configArchive]}
	if r.Phase != Settled {
		next.Keys[configSettled] = r.Keys[configSettled]
	}
	return &next
}

// withNewKey returns the configurations of a rotation. Each resource whose first provider has keys
// (aesgcm, aescbc, secretbox) gets a new one; resources with the same kind of provider share it.
// archive is that of the last rotation, or nil.
func withNewKey(config, archive []byte, now time.Time) (name string, all map[string][]byte, err error) {
	var suffix [2]byte
	if _, err := rand.Read(suffix[:]); err != nil {
		return "", nil, err
	}
	name = "knarr-" + now.UTC().Format("20060102") + "-" + hex.EncodeToString(suffix[:])
	var base, old apiserverconfig.EncryptionConfiguration
	if err := yaml.UnmarshalStrict(config, &base); err != nil {
		return "", nil, fmt.Errorf("the encryption configuration: %w", err)
	}
	if err := yaml.Unmarshal(archive, &old); err != nil {
		return "", nil, fmt.Errorf("the archive of encryption keys: %w", err)
	}
	fresh := map[string]apiserverconfig.Key{}
	changed := func(do func(writer *[]apiserverconfig.Key, key apiserverconfig.Key)) ([]byte, error) {
		c := base.DeepCopy()
		found := false
		for i := range c.Resources {
			kind, writer := writingKeys(&c.Resources[i])
			if writer == nil {
				continue
			}
			if _, ok := fresh[kind]; !ok {
				secret := make([]byte, 32)
				if _, err := rand.Read(secret); err != nil {
					return nil, err
				}
				fresh[kind] = apiserverconfig.Key{Name: name, Secret: base64.StdEncoding.EncodeToString(secret)}
			}
			do(writer, fresh[kind])
			found = true
		}
		if !found {
			return nil, errors.New("no resource of the encryption configuration is written by aesgcm, aescbc or secretbox: a KMS plugin's keys are rotated in its own system")
		}
		return yaml.Marshal(c)
	}
	all = map[string][]byte{configBefore: config}
	if archive == nil {
		archive = config
	}
	all[configBefore+configArchive] = archive
	for use, do := range map[string]func(*[]apiserverconfig.Key, apiserverconfig.Key){
		string(Trusting): func(w *[]apiserverconfig.Key, k apiserverconfig.Key) { *w = append(*w, k) },
		string(Signing):  func(w *[]apiserverconfig.Key, k apiserverconfig.Key) { *w = slices.Insert(*w, 0, k) },
		configSettled:    func(w *[]apiserverconfig.Key, k apiserverconfig.Key) { *w = []apiserverconfig.Key{k} },
	} {
		if all[use], err = changed(do); err != nil {
			return "", nil, err
		}
	}
	var signing apiserverconfig.EncryptionConfiguration
	if err := yaml.Unmarshal(all[string(Signing)], &signing); err != nil {
		return "", nil, err
	}
	addArchived(&signing, &old)
	all[configArchive], err = yaml.Marshal(&signing)
	return name, all, err
}

// addArchived adds the keys of earlier rotations for reading.
func addArchived(c, old *apiserverconfig.EncryptionConfiguration) {
	for i := range c.Resources {
		kind, writer := writingKeys(&c.Resources[i])
		if writer == nil {
			continue
		}
		for j := range old.Resources {
			if !sharesResource(&c.Resources[i], &old.Resources[j]) {
				continue
			}
			oldKind, keys := writingKeys(&old.Resources[j])
			if keys == nil || oldKind != kind {
				continue
			}
			for _, k := range *keys {
				if !slices.ContainsFunc(*writer, func(have apiserverconfig.Key) bool { return have.Name == k.Name }) {
					*writer = append(*writer, k)
				}
			}
		}
	}
}

func sharesResource(a, b *apiserverconfig.ResourceConfiguration) bool {
	return slices.ContainsFunc(a.Resources, func(name string) bool { return slices.Contains(b.Resources, strings.TrimSpace(name)) })
}

// writingKeys returns the keys of the provider that encrypts, and its kind; nil if it has no keys
// in the configuration.
func writingKeys(r *apiserverconfig.ResourceConfiguration) (kind string, keys *[]apiserverconfig.Key) {
	if len(r.Providers) == 0 {
		return "", nil
	}
	switch p := &r.Providers[0]; {
	case p.AESGCM != nil:
		return "aesgcm", &p.AESGCM.Keys
	case p.AESCBC != nil:
		return "aescbc", &p.AESCBC.Keys
	case p.Secretbox != nil:
		return "secretbox", &p.Secretbox.Keys
	}
	return "", nil
}
