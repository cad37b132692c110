package admission

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	psconfig "k8s.io/pod-security-admission/admission/api"
	psload "k8s.io/pod-security-admission/admission/api/load"
	"sigs.k8s.io/yaml"
)

// Files are the settings of plugins that have any.
type Files struct {
	PodSecurity *psconfig.PodSecurityConfiguration
	EventLimits []EventLimit
	ImagePolicy *ImagePolicy
	// Limited is what only namespaces with a quota for it may use.
	Limited []LimitedResource
	// NodeSelectors are PodNodeSelector's, by namespace.
	NodeSelectors map[string]string
	// Tolerations are PodTolerationRestriction's.
	Tolerations Tolerations
	// MutatingWebhooks and ValidatingWebhooks are kubeconfig files with the credentials that webhooks are shown.
	MutatingWebhooks, ValidatingWebhooks string
}

// configVersions are those that upstream reads.
var configVersions = []string{"apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"}

// LoadFiles reads an AdmissionConfiguration (apiserver.config.k8s.io/v1), which holds each plugin's settings or names a
// file of them, relative to its own folder.
func LoadFiles(path string) (files Files, err error) {
	if path == "" {
		return files, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return files, fmt.Errorf("admission configuration: %w", err)
	}
	var all struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Plugins    []struct {
			Name          string                `json:"name"`
			Path          string                `json:"path"`
			Configuration *runtime.RawExtension `json:"configuration"`
		} `json:"plugins"`
	}
	if err := yaml.UnmarshalStrict(data, &all); err != nil {
		return files, fmt.Errorf("admission configuration %s: %w", path, err)
	}
	if !slices.Contains(configVersions, all.APIVersion) || all.Kind != "AdmissionConfiguration" {
		return files, fmt.Errorf("admission configuration %s: it is a %q of %q, not an AdmissionConfiguration of %s", path, all.Kind, all.APIVersion, configVersions[0])
	}
	for _, p := range all.Plugins {
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
		if err := files.take(p.Name, raw, filepath.Dir(path)); err != nil {
			return files, fmt.Errorf("admission configuration of %s: %w", p.Name, err)
		}
	}
	return files, nil
}

// take reads one plugin's settings; names of files in them are relative to a folder.
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
		var limits struct {
			APIVersion string       `json:"apiVersion"`
			Kind       string       `json:"kind"`
			Limits     []EventLimit `json:"limits"`
		}
		err = yaml.UnmarshalStrict(raw, &limits)
		f.EventLimits = limits.Limits
	case "ResourceQuota":
		var settings struct {
			APIVersion string            `json:"apiVersion"`
			Kind       string            `json:"kind"`
			Limited    []LimitedResource `json:"limitedResources"`
		}
		err = yaml.UnmarshalStrict(raw, &settings)
		f.Limited = settings.Limited
	case "PodNodeSelector":
		var settings struct {
			Selectors map[string]string `json:"podNodeSelectorPluginConfig"`
		}
		err = yaml.UnmarshalStrict(raw, &settings)
		f.NodeSelectors = settings.Selectors
	case "PodTolerationRestriction":
		err = yaml.UnmarshalStrict(raw, &f.Tolerations)
	case "MutatingAdmissionWebhook":
		f.MutatingWebhooks, err = webhookCredentials(raw, folder)
	case "ValidatingAdmissionWebhook":
		f.ValidatingWebhooks, err = webhookCredentials(raw, folder)
	default:
		err = fmt.Errorf("the plugin has no settings here")
	}
	return err
}

// webhookCredentials is the file that a WebhookAdmissionConfiguration names.
func webhookCredentials(raw []byte, folder string) (string, error) {
	var settings struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		File       string `json:"kubeConfigFile"`
	}
	if err := yaml.UnmarshalStrict(raw, &settings); err != nil {
		return "", err
	}
	if settings.File != "" && !filepath.IsAbs(settings.File) {
		settings.File = filepath.Join(folder, settings.File)
	}
	return settings.File, nil
}
