package encryption

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	apiserverconfig "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	"k8s.io/apiserver/pkg/storage/value"
	aestransformer "k8s.io/apiserver/pkg/storage/value/encrypt/aes"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"
	"k8s.io/apiserver/pkg/storage/value/encrypt/secretbox"
)

// rule is the providers of a resource.
type rule struct {
	resource schema.GroupResource // "*" stands for all
	value.Transformer
}

// panicError is a panic of a transformer. Its stack is logged and not sent to clients.
type panicError struct {
	cause any
	stack []byte
}

// Error implements error.
func (e *panicError) Error() string { return fmt.Sprintf("the value cannot be read: %v", e.cause) }

// TransformFromStorage implements value.Transformer. It recovers panics: stored values may be
// anything, and the library panics on a truncated aescbc value.
func (r *rule) TransformFromStorage(ctx context.Context, data []byte, of value.Context) (plain []byte, stale bool, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = &panicError{cause, debug.Stack()}
		}
	}()
	return r.Transformer.TransformFromStorage(ctx, data, of)
}

// rules are tried in order.
type rules struct {
	list []rule
	// kms are the plugins in the order of the file. A reload keeps unchanged plugins.
	kms []*plugin
}

var errNoProvider = errors.New("no matching prefix found")

// load creates the rules of a configuration. It reuses the unchanged plugins of an earlier
// configuration.
func load(ctx context.Context, data []byte, before *rules) (*rules, error) {
	config, err := parse(data)
	if err != nil {
		return nil, err
	}
	return build(ctx, config, before)
}

func parse(data []byte) (*apiserverconfig.EncryptionConfiguration, error) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	codecs := serializer.NewCodecFactory(scheme, serializer.EnableStrict)
	obj, _, err := codecs.UniversalDecoder(apiserverconfig.SchemeGroupVersion).Decode(data, nil, nil)
	if err != nil {
		return nil, err
	}
	config, ok := obj.(*apiserverconfig.EncryptionConfiguration)
	if !ok {
		return nil, fmt.Errorf("kind %T, expected EncryptionConfiguration of %s", obj, apiserverv1.SchemeGroupVersion)
	}
	return config, validation.ValidateEncryptionConfiguration(config, true).ToAggregate()
}

func build(ctx context.Context, config *apiserverconfig.EncryptionConfiguration, before *rules) (*rules, error) {
	if err := checkMasked(config.Resources); err != nil {
		return nil, err
	}
	out := &rules{}
	// In order of appearance: a precise rule precedes the wildcard that would mask it.
	var order []schema.GroupResource
	providers := map[schema.GroupResource][]value.PrefixTransformer{}
	for i := range config.Resources {
		c := &config.Resources[i]
		var all []value.PrefixTransformer
		for j := range c.Providers {
			made, err := out.provider(ctx, &c.Providers[j], before)
			if err != nil {
				out.closeUnused(before)
				return nil, fmt.Errorf("resources[%d].providers[%d]: %w", i, j, err)
			}
			all = append(all, made...)
		}
		for _, name := range c.Resources {
			gr := parseResource(name)
			if providers[gr] == nil {
				order = append(order, gr)
			}
			// A resource that is named again can also be read with these providers.
			providers[gr] = append(providers[gr], all...)
		}
	}
	for _, gr := range order {
		out.list = append(out.list, rule{gr, value.NewPrefixTransformers(errNoProvider, providers[gr]...)})
	}
	return out, nil
}

// checkMasked refuses a resource that an earlier wildcard rule covers: its own rule would have no
// effect, and its objects might stay unencrypted.
func checkMasked(list []apiserverconfig.ResourceConfiguration) error {
	var wildcards []string
	for i := range list {
		for j, name := range list[i].Resources {
			gr := parseResource(name)
			for _, wildcard := range wildcards {
				if group := parseResource(wildcard).Group; group == "*" || group == gr.Group {
					return fmt.Errorf("resources[%d].resources[%d]: resource %q is masked by earlier rule %q", i, j, name, wildcard)
				}
			}
		}
		for _, name := range list[i].Resources {
			if parseResource(name).Resource == "*" {
				wildcards = append(wildcards, name)
			}
		}
	}
	return nil
}

// parseResource parses a resource: "*.apps" is all of a group, "*." all of the core group, "*.*"
// everything.
func parseResource(name string) schema.GroupResource {
	if name == "*." {
		return schema.GroupResource{Resource: "*"}
	}
	return schema.ParseGroupResource(name)
}

func (r *rules) provider(ctx context.Context, p *apiserverconfig.ProviderConfiguration, before *rules) ([]value.PrefixTransformer, error) {
	switch {
	case p.AESGCM != nil:
		return newAESTransformers("aesgcm", p.AESGCM.Keys, aestransformer.NewGCMTransformer)
	case p.AESCBC != nil:
		return newAESTransformers("aescbc", p.AESCBC.Keys, func(b cipher.Block) (value.Transformer, error) { return aestransformer.NewCBCTransformer(b), nil })
	case p.Secretbox != nil:
		return newKeyTransformers("secretbox", "Secretbox", p.Secretbox.Keys, func(key []byte) (value.Transformer, error) {
			if len(key) != 32 {
				return nil, fmt.Errorf("a key of %d bytes, expected 32", len(key))
			}
			return secretbox.NewSecretboxTransformer([32]byte(key)), nil
		})
	case p.Identity != nil:
		return []value.PrefixTransformer{{Transformer: identity.NewEncryptCheckTransformer()}}, nil
	case p.KMS != nil:
		return r.addPlugin(ctx, p.KMS, before)
	}
	return nil, errors.New("names no provider")
}

func newAESTransformers(kind string, keys []apiserverconfig.Key, make func(cipher.Block) (value.Transformer, error)) ([]value.PrefixTransformer, error) {
	return newKeyTransformers(kind, "AES", keys, func(key []byte) (value.Transformer, error) {
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, err
		}
		return make(block)
	})
}

// newKeyTransformers returns one transformer for all keys; the first key encrypts.
func newKeyTransformers(kind, family string, keys []apiserverconfig.Key, make func(key []byte) (value.Transformer, error)) ([]value.PrefixTransformer, error) {
	var all []value.PrefixTransformer
	for _, k := range keys {
		key, err := base64.StdEncoding.DecodeString(k.Secret)
		if err != nil {
			return nil, fmt.Errorf("%s key %s: the secret is not base64", kind, k.Name)
		}
		t, err := make(key)
		if err != nil {
			return nil, fmt.Errorf("%s key %s: %w", kind, k.Name, err)
		}
		all = append(all, value.PrefixTransformer{Prefix: []byte(k.Name + ":"), Transformer: t})
	}
	oneOf := value.NewPrefixTransformers(fmt.Errorf("no matching key was found for the provided %s transformer", family), all...)
	return []value.PrefixTransformer{{Prefix: []byte("k8s:enc:" + kind + ":v1:"), Transformer: oneOf}}, nil
}

// find returns the rule of a resource; nil if it is not encrypted.
func (r *rules) find(gr schema.GroupResource) *rule {
	for i := range r.list {
		pattern := r.list[i].resource
		group := pattern.Group == gr.Group || pattern.Group == "*"
		if group && (pattern.Resource == gr.Resource || pattern.Resource == "*") {
			return &r.list[i]
		}
	}
	return nil
}

// encrypted reports whether a stored value is encrypted.
func encrypted(stored []byte) bool {
	return strings.HasPrefix(string(stored[:min(len(stored), 8)]), "k8s:enc:")
}
