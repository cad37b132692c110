package credentials

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	kubeletconfig "k8s.io/kubelet/config/v1"
	"sigs.k8s.io/yaml"
)

const (
	configGroup  = "kubelet.config.k8s.io/"
	configKind   = "CredentialProviderConfig"
	requestGroup = "credentialprovider.kubelet.k8s.io/"
	// maxConfig bounds a file of the configuration.
	maxConfig = 1 << 20
)

// versions are the versions of both API groups. Their fields differ in tokenAttributes, which only
// v1 has.
var versions = []string{"v1", "v1beta1", "v1alpha1"}

// read reads the configuration from a file, or from the .json, .yaml and .yml files of a folder in
// the order of their names. hash identifies the content.
func read(path string) (providers []kubeletconfig.CredentialProvider, hash string, err error) {
	files, err := list(path)
	if err != nil {
		return nil, "", err
	}
	sum := sha256.New()
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, "", err
		}
		if len(data) > maxConfig {
			return nil, "", fmt.Errorf("%s: %d bytes are not usable: at most %d", file, len(data), maxConfig)
		}
		c := kubeletconfig.CredentialProviderConfig{}
		if err := yaml.UnmarshalStrict(data, &c); err != nil {
			return nil, "", fmt.Errorf("%s: %w", file, err)
		}
		if version, ok := strings.CutPrefix(c.APIVersion, configGroup); !ok || c.Kind != configKind || !slices.Contains(versions, version) {
			return nil, "", fmt.Errorf("%s: apiVersion %q and kind %q are not usable: kubelet.config.k8s.io/v1 and %s", file, c.APIVersion, c.Kind, configKind)
		}
		fmt.Fprintf(sum, "%d\n", len(data))
		sum.Write(data)
		providers = append(providers, c.Providers...)
	}
	if err := validate(providers); err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	return providers, fmt.Sprintf("sha256:%x", sum.Sum(nil)), nil
}

func list(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() && slices.Contains([]string{".json", ".yaml", ".yml"}, filepath.Ext(e.Name())) {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	return files, nil
}

// validate returns an error for each invalid field.
func validate(providers []kubeletconfig.CredentialProvider) error {
	if len(providers) == 0 {
		return errors.New("providers: an empty list is not usable: at least one provider")
	}
	var errs []error
	names := map[string]bool{}
	for i, p := range providers {
		bad := func(field, value, allowed string) {
			errs = append(errs, fmt.Errorf("providers[%d].%s: %s is not usable: %s", i, field, value, allowed))
		}
		if p.Name == "" || p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/ \x00") {
			bad("name", fmt.Sprintf("%q", p.Name), "the name of a program, without a folder and spaces")
		}
		if names[p.Name] {
			bad("name", fmt.Sprintf("%q", p.Name), "a name that no other provider has")
		}
		names[p.Name] = true
		version, ok := strings.CutPrefix(p.APIVersion, requestGroup)
		if !ok || !slices.Contains(versions, version) {
			bad("apiVersion", fmt.Sprintf("%q", p.APIVersion), requestGroup+strings.Join(versions, ", "+requestGroup))
		}
		if len(p.MatchImages) == 0 {
			bad("matchImages", "an empty list", "at least one pattern, such as *.registry.io")
		}
		for _, pattern := range p.MatchImages {
			if _, err := parse(pattern); err != nil {
				bad("matchImages", fmt.Sprintf("%q", pattern), err.Error())
			}
		}
		if p.DefaultCacheDuration == nil {
			bad("defaultCacheDuration", "no value", "a duration, such as 12h")
		} else if p.DefaultCacheDuration.Duration < 0 {
			bad("defaultCacheDuration", p.DefaultCacheDuration.Duration.String(), "0s or more")
		}
		for _, e := range p.Env {
			if e.Name == "" || strings.ContainsAny(e.Name, "=\x00") || strings.ContainsRune(e.Value, 0) {
				bad("env", fmt.Sprintf("%q", e.Name), "the name of a variable")
			}
		}
		if t := p.TokenAttributes; t != nil {
			if version != "v1" {
				bad("tokenAttributes", "a value", "only with apiVersion: "+requestGroup+"v1")
			}
			validateToken(t, bad)
		}
	}
	return errors.Join(errs...)
}

func validateToken(t *kubeletconfig.ServiceAccountTokenAttributes, bad func(field, value, allowed string)) {
	if t.ServiceAccountTokenAudience == "" {
		bad("tokenAttributes.serviceAccountTokenAudience", `""`, "the audience of the token")
	}
	types := []kubeletconfig.ServiceAccountTokenCacheType{kubeletconfig.TokenServiceAccountTokenCacheType, kubeletconfig.ServiceAccountServiceAccountTokenCacheType}
	if !slices.Contains(types, t.CacheType) {
		bad("tokenAttributes.cacheType", fmt.Sprintf("%q", t.CacheType), "Token or ServiceAccount")
	}
	if t.RequireServiceAccount == nil {
		bad("tokenAttributes.requireServiceAccount", "no value", "true or false")
	} else if !*t.RequireServiceAccount && len(t.RequiredServiceAccountAnnotationKeys) > 0 {
		bad("tokenAttributes.requiredServiceAccountAnnotationKeys", fmt.Sprintf("%d keys", len(t.RequiredServiceAccountAnnotationKeys)), "only with requireServiceAccount: true")
	}
	seen := map[string]bool{}
	for _, keys := range []struct {
		field string
		list  []string
	}{{"requiredServiceAccountAnnotationKeys", t.RequiredServiceAccountAnnotationKeys}, {"optionalServiceAccountAnnotationKeys", t.OptionalServiceAccountAnnotationKeys}} {
		for _, key := range keys.list {
			if len(validation.IsQualifiedName(strings.ToLower(key))) > 0 {
				bad("tokenAttributes."+keys.field, fmt.Sprintf("%q", key), "the key of an annotation")
			}
			if seen[key] {
				bad("tokenAttributes."+keys.field, fmt.Sprintf("%q", key), "a key that is in the lists once")
			}
			seen[key] = true
		}
	}
}
