package credentials

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
)

// Config configures Providers. All fields are required.
type Config struct {
	// File is the file or the folder of the configuration, BinDir the folder of the programs.
	File, BinDir string
	// Account reads a service account.
	Account func(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error)
	// Token requests a token of the service account for one audience, bound to the pod.
	Token func(ctx context.Context, pod *corev1.Pod, account *corev1.ServiceAccount, audience string) (token string, expire time.Time, err error)
	Now   func() time.Time
	Log   *slog.Logger
}

// Providers are the plugins. It is safe for concurrent use.
type Providers struct {
	Config
	plugins []*provider
	hash    string
	errors  *prometheus.CounterVec
	seconds *prometheus.HistogramVec
}

type provider struct {
	*plugin
	cache  cache
	tokens tokens
	flight singleflight.Group
}

// Credential opens the images that match a pattern.
type Credential struct {
	Pattern            string
	Username, Password string
	// Account is the service account for which the plugin was asked; nil if it was asked for the
	// node.
	Account *corev1.ServiceAccount
}

// New reads the configuration and checks that its programs exist.
func New(c Config) (*Providers, error) {
	configured, hash, err := read(c.File)
	if err != nil {
		return nil, fmt.Errorf("image credential providers: %w", err)
	}
	p := &Providers{
		Config: c, hash: hash,
		errors:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_credential_provider_plugin_errors", Help: "[ALPHA] Number of errors from credential provider plugin"}, []string{"plugin_name"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubelet_credential_provider_plugin_duration", Help: "[ALPHA] Duration of execution in seconds for credential provider plugin", Buckets: prometheus.DefBuckets}, []string{"plugin_name"}),
	}
	for _, one := range configured {
		found, err := find(c.BinDir, one)
		if err != nil {
			return nil, fmt.Errorf("image credential providers: %w", err)
		}
		p.plugins = append(p.plugins, &provider{plugin: found})
	}
	return p, nil
}

// Collectors are upstream's metrics of plugins.
func (p *Providers) Collectors() []prometheus.Collector {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "kubelet_credential_provider_config_info", Help: "[ALPHA] Information about the last applied credential provider configuration with hash as label"}, []string{"hash"})
	info.WithLabelValues(p.hash).Set(1)
	return []prometheus.Collector{p.errors, p.seconds, info}
}

// Credentials returns the credentials for an image, which has neither tag nor digest. The first
// matching plugin's come first, and of a plugin those with the longest pattern. A plugin that fails
// gives none; err says why.
func (p *Providers) Credentials(ctx context.Context, pod *corev1.Pod, image string) (out []Credential, err error) {
	var errs []error
	for _, one := range p.plugins {
		if !one.matches(image) {
			continue
		}
		auth, account, err := p.of(ctx, one, pod, image)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		// In reverse order a longer pattern comes before its prefix, and a wildcard after other
		// text.
		patterns := slices.SortedFunc(maps.Keys(auth), func(a, b string) int { return strings.Compare(b, a) })
		for _, pattern := range patterns {
			if Matches(pattern, image) {
				out = append(out, Credential{pattern, auth[pattern].Username, auth[pattern].Password, account})
			}
		}
	}
	return out, errors.Join(errs...)
}

// of returns the answer of one plugin, from its cache or by running it once for all waiting
// callers.
func (p *Providers) of(ctx context.Context, one *provider, pod *corev1.Pod, image string) (map[string]api.AuthConfig, *corev1.ServiceAccount, error) {
	request := api.CredentialProviderRequest{Image: image}
	account, caller, err := p.identify(ctx, one, pod, &request)
	if err != nil || account == nil && one.TokenAttributes != nil && *one.TokenAttributes.RequireServiceAccount {
		return nil, nil, err
	}
	if auth, ok := one.cache.find(image, caller, p.Now()); ok {
		return auth, account, nil
	}
	answer := one.flight.DoChan(image+"\x00"+caller, func() (any, error) {
		// The run belongs to all callers, so it goes on without the first one.
		began := p.Now()
		r, said, err := one.ask(context.WithoutCancel(ctx), request)
		p.seconds.WithLabelValues(one.Name).Observe(p.Now().Sub(began).Seconds())
		if err != nil {
			p.errors.WithLabelValues(one.Name).Inc()
			p.Log.Warn("a provider of image credentials has failed", "provider", one.Name, "image", image, "error", err, "messages", said)
			return nil, err
		}
		keep := one.DefaultCacheDuration.Duration
		if r.CacheDuration != nil {
			keep = r.CacheDuration.Duration
		}
		one.cache.keep(keyOf(r.CacheKeyType, image, caller), r.Auth, p.Now(), keep)
		return r.Auth, nil
	})
	select {
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case r := <-answer:
		if r.Err != nil {
			return nil, nil, r.Err
		}
		return r.Val.(map[string]api.AuthConfig), account, nil
	}
}

// identify adds the token and the annotations of the pod's service account to a request. caller
// identifies what the answer depends on.
func (p *Providers) identify(ctx context.Context, one *provider, pod *corev1.Pod, r *api.CredentialProviderRequest) (account *corev1.ServiceAccount, caller string, err error) {
	t := one.TokenAttributes
	if t == nil || pod.Spec.ServiceAccountName == "" {
		return nil, "", nil
	}
	fail := func(err error) (*corev1.ServiceAccount, string, error) {
		p.errors.WithLabelValues(one.Name).Inc()
		return nil, "", fmt.Errorf("provider %s: service account %s/%s: %w", one.Name, pod.Namespace, pod.Spec.ServiceAccountName, err)
	}
	if account, err = p.Account(ctx, pod.Namespace, pod.Spec.ServiceAccountName); err != nil {
		return fail(err)
	}
	for _, key := range t.RequiredServiceAccountAnnotationKeys {
		if _, ok := account.Annotations[key]; !ok {
			return fail(fmt.Errorf("it has no annotation %s, which the provider requires", key))
		}
	}
	for _, key := range slices.Concat(t.RequiredServiceAccountAnnotationKeys, t.OptionalServiceAccountAnnotationKeys) {
		if value, ok := account.Annotations[key]; ok {
			if r.ServiceAccountAnnotations == nil {
				r.ServiceAccountAnnotations = map[string]string{}
			}
			r.ServiceAccountAnnotations[key] = value
		}
	}
	if r.ServiceAccountToken, err = one.tokens.get(ctx, p, pod, account, t.ServiceAccountTokenAudience); err != nil {
		return fail(err)
	}
	caller = fmt.Sprintf("%q %q %q", account.Namespace, account.Name, account.UID)
	for _, key := range slices.Sorted(maps.Keys(r.ServiceAccountAnnotations)) {
		caller += fmt.Sprintf(" %q=%q", key, r.ServiceAccountAnnotations[key])
	}
	if t.CacheType == "Token" {
		caller += fmt.Sprintf(" %x", sha256.Sum256([]byte(r.ServiceAccountToken)))
	}
	return account, caller, nil
}

// tokenKey is what a token is bound to.
type tokenKey struct {
	pod, account types.UID
}
