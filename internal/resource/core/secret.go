package core

import (
	"crypto/tls"
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

func SecretStrategy() *strategy.Strategy {
	s := strategy.Plain(true)
	s.Default = strategy.On(defaultSecret)
	s.ValidateCreate = strategy.Checks(validateSecret)
	s.ValidateUpdate = strategy.ChecksBoth(validateSecretUpdate)
	s.Warnings = func(obj, _ runtime.Object) []string {
		secret := obj.(*corev1.Secret)
		if secret.Type != corev1.SecretTypeTLS {
			return nil
		}
		if _, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]); err != nil {
			return []string{err.Error()}
		}
		return nil
	}
	s.FieldNames = []string{"type"}
	s.Fields = func(obj runtime.Object) fields.Set {
		return fields.Set{"type": string(obj.(*corev1.Secret).Type)}
	}
	return strategy.Show(strategy.WithNameRuleOnUpdate(s), secretColumns, secretRow)
}

// defaultSecret moves the write-only field stringData into data; stringData wins (API reference,
// Secret).
func defaultSecret(s *corev1.Secret) {
	strategy.SetDefault(&s.Type, corev1.SecretTypeOpaque)
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for k, v := range s.StringData {
		s.Data[k] = []byte(v)
	}
	s.StringData = nil
}

func validateSecret(s *corev1.Secret) field.ErrorList {
	var errs field.ErrorList
	data, size := field.NewPath("data"), 0
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		errs = append(errs, validate.Invalids(data.Key(key), key, validation.IsConfigMapKey(key))...)
		size += len(s.Data[key])
	}
	if size > maxDataSize {
		errs = append(errs, field.TooLong(data, "", maxDataSize))
	}
	// wants reports missing keys that the type requires.
	wants := func(keys ...string) {
		for _, key := range keys {
			if _, ok := s.Data[key]; !ok {
				errs = append(errs, field.Required(data.Key(key), ""))
			}
		}
	}
	docker := func(key string) {
		value, ok := s.Data[key]
		if !ok {
			errs = append(errs, field.Required(data.Key(key), ""))
			return
		}
		if err := json.Unmarshal(value, &map[string]any{}); err != nil {
			errs = append(errs, field.Invalid(data.Key(key), "<secret contents redacted>", err.Error()))
		}
	}
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			errs = append(errs, field.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), ""))
		}
	case corev1.SecretTypeDockercfg:
		docker(corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		docker(corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		_, user := s.Data[corev1.BasicAuthUsernameKey]
		_, password := s.Data[corev1.BasicAuthPasswordKey]
		if !user && !password {
			wants(corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
		}
	case corev1.SecretTypeSSHAuth:
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			errs = append(errs, field.Required(data.Key(corev1.SSHAuthPrivateKey), ""))
		}
	case corev1.SecretTypeTLS:
		wants(corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	return errs
}

func validateSecretUpdate(s, old *corev1.Secret) field.ErrorList {
	errs := validate.Immutable(s.Type, old.Type, field.NewPath("type"))
	if old.Immutable != nil && *old.Immutable {
		if s.Immutable == nil || !*s.Immutable {
			errs = append(errs, field.Forbidden(field.NewPath("immutable"), whenImmutable))
		}
		if !validate.Equal(s.Data, old.Data) {
			errs = append(errs, field.Forbidden(field.NewPath("data"), whenImmutable))
		}
	}
	return append(errs, validateSecret(s)...)
}

var secretColumns = columns.Define("Name", "Type@type", "Data@data", "Age")

func secretRow(s *corev1.Secret, now metav1.Time) []any {
	return []any{s.Name, string(s.Type), int64(len(s.Data)), columns.AgeOf(s, now)}
}
