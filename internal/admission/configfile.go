package admission

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	psconfig "k8s.io/pod-security-admission/admission/api"
	psload "k8s.io/pod-security-admission/admission/api/load"
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/resource/pods"
)

// Files are the settings of plugins that have settings.
type Files struct {
	PodSecurity *psconfig.PodSecurityConfiguration
	EventLimits []EventLimit
	ImagePolicy *ImagePolicy
	// Limited are resources that only namespaces with a quota for them may use.
	Limited []LimitedResource
	// NodeSelectors are the settings of PodNodeSelector, by namespace.
	NodeSelectors map[string]string
	// Tolerations are the settings of PodTolerationRestriction.
	Tolerations Tolerations
	// MutatingWebhooks and ValidatingWebhooks are kubeconfig files with the credentials sent to
	// webhooks.
	MutatingWebhooks, ValidatingWebhooks string
}

// LoadFiles reads an AdmissionConfiguration (apiserver.config.k8s.io/v1). It contains each plugin's
// settings or the name of a file with them, relative to its own folder. As upstream, settings of
// plugins that do not run are ignored, and the first settings of a plugin count.
func LoadFiles(path string, runs func(plugin string) bool) (files Files, err error) {
	if path == "" {
		return files, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return files, fmt.Errorf("admission configuration: %w", err)
	}
	var all struct {
		metav1.TypeMeta `json:",inline"`
		Plugins         []struct {
			Name          string                `json:"name"`
			Path          string                `json:"path"`
			Configuration *runtime.RawExtension `json:"configuration"`
		} `json:"plugins"`
	}
	if err := readSettings(data, &all, kindOf("AdmissionConfiguration", "apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1")); err != nil {
		return files, fmt.Errorf("admission configuration %s: %w", path, err)
	}
	seen := map[string]bool{}
	for _, p := range all.Plugins {
		if seen[p.Name] || !slices.Contains(Names, p.Name) || !runs(p.Name) {
			continue
		}
		seen[p.Name] = true
		var raw []byte
		switch {
		case p.Configuration != nil:
			raw = p.Configuration.Raw
		case p.Path != "":
			file := p.Path
			if !filepath.IsAbs(file) {
				file = filepath.Join(filepath.Dir(path), file)
			}
			if raw, err = os.ReadFile(file); err != nil {
				return files, fmt.Errorf("admission configuration of %s: %w", p.Name, err)
			}
		}
		if len(bytes.TrimSpace(raw)) == 0 {
			continue // the plugin has no settings
		}
		if err := files.take(p.Name, raw, filepath.Dir(path)); err != nil {
			return files, fmt.Errorf("admission configuration of %s: %w", p.Name, err)
		}
	}
	return files, nil
}

// take reads one plugin's settings. File names in them are relative to folder. Settings of a plugin
// that has none are ignored.
func (f *Files) take(name string, raw []byte, folder string) (err error) {
	switch name {
	case "ImagePolicyWebhook":
		var settings struct {
			ImagePolicy ImagePolicy `json:"imagePolicy"`
		}
		if err := yaml.UnmarshalStrict(raw, &settings); err != nil {
			return err
		}
		f.ImagePolicy = &settings.ImagePolicy
		if err := f.ImagePolicy.normal(); err != nil {
			return err
		}
		if !filepath.IsAbs(f.ImagePolicy.KubeConfigFile) {
			f.ImagePolicy.KubeConfigFile = filepath.Join(folder, f.ImagePolicy.KubeConfigFile)
		}
	case "PodSecurity":
		f.PodSecurity, err = psload.LoadFromData(raw)
	case "EventRateLimit":
		f.EventLimits, err = eventLimits(raw)
	case "ResourceQuota":
		f.Limited, err = limitedResources(raw)
	case "PodNodeSelector":
		var settings struct {
			Selectors map[string]string `json:"podNodeSelectorPluginConfig"`
		}
		err = yaml.Unmarshal(raw, &settings)
		f.NodeSelectors = settings.Selectors
	case "PodTolerationRestriction":
		f.Tolerations, err = tolerationSettings(raw)
	case "MutatingAdmissionWebhook":
		f.MutatingWebhooks, err = webhookCredentials(raw, folder)
	case "ValidatingAdmissionWebhook":
		f.ValidatingWebhooks, err = webhookCredentials(raw, folder)
	}
	return err
}

// kindOf returns a kind in several versions; errors name the first.
func kindOf(kind string, versions ...string) (kinds []metav1.TypeMeta) {
	for _, v := range versions {
		kinds = append(kinds, metav1.TypeMeta{APIVersion: v, Kind: kind})
	}
	return kinds
}

// readSettings decodes settings of one of the kinds; unknown fields are errors.
func readSettings(raw []byte, into any, kinds []metav1.TypeMeta) error {
	if err := ofKind(raw, kinds); err != nil {
		return err
	}
	return yaml.UnmarshalStrict(raw, into)
}

func ofKind(raw []byte, kinds []metav1.TypeMeta) error {
	var is metav1.TypeMeta
	if err := yaml.Unmarshal(raw, &is); err != nil {
		return err
	}
	if !slices.Contains(kinds, is) {
		return fmt.Errorf("kind %q of %q, want %s of %s", is.Kind, is.APIVersion, kinds[0].Kind, kinds[0].APIVersion)
	}
	return nil
}

// eventLimits reads the settings of EventRateLimit. As upstream, unknown fields are ignored.
func eventLimits(raw []byte) ([]EventLimit, error) {
	var settings struct {
		Limits []EventLimit `json:"limits"`
	}
	if err := ofKind(raw, kindOf("Configuration", "eventratelimit.admission.k8s.io/v1alpha1")); err != nil {
		return nil, err
	}
	err := yaml.Unmarshal(raw, &settings)
	return settings.Limits, err
}

// limitedResources reads the settings of ResourceQuota.
func limitedResources(raw []byte) ([]LimitedResource, error) {
	var settings struct {
		metav1.TypeMeta `json:",inline"`
		Limited         []LimitedResource `json:"limitedResources"`
	}
	kinds := append(kindOf("ResourceQuotaConfiguration", "apiserver.config.k8s.io/v1"),
		kindOf("Configuration", "resourcequota.admission.k8s.io/v1beta1", "resourcequota.admission.k8s.io/v1alpha1")...)
	if err := readSettings(raw, &settings, kinds); err != nil {
		return nil, err
	}
	for i, l := range settings.Limited {
		if l.Resource == "" {
			return nil, field.Required(field.NewPath("limitedResources").Index(i).Child("resource"), "")
		}
	}
	return settings.Limited, nil
}

// tolerationSettings reads the settings of PodTolerationRestriction.
func tolerationSettings(raw []byte) (settings Tolerations, err error) {
	if err := readSettings(raw, &settings, kindOf("Configuration", "podtolerationrestriction.admission.k8s.io/v1alpha1")); err != nil {
		return settings, err
	}
	at := field.NewPath("podtolerationrestriction")
	errs := pods.ValidateTolerations(settings.Default, at.Child("default"))
	return settings, append(errs, pods.ValidateTolerations(settings.Allowed, at.Child("whitelist"))...).ToAggregate()
}

// webhookCredentials returns the file that a WebhookAdmissionConfiguration names.
func webhookCredentials(raw []byte, folder string) (string, error) {
	var settings struct {
		metav1.TypeMeta `json:",inline"`
		File            string `json:"kubeConfigFile"`
	}
	if err := readSettings(raw, &settings, kindOf("WebhookAdmissionConfiguration", "apiserver.config.k8s.io/v1")); err != nil {
		return "", err
	}
	if settings.File != "" && !filepath.IsAbs(settings.File) {
		settings.File = filepath.Join(folder, settings.File)
	}
	return settings.File, nil
}
