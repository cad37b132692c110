package envtest

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/knarrtest/internal/crd"
)

const (
	defaultMaxTime      = 10 * time.Second
	defaultPollInterval = 10 * time.Millisecond
)

// CRDInstallOptions selects the CustomResourceDefinitions to install.
type CRDInstallOptions struct {
	// Scheme selects the definitions with a conversion webhook, like Environment.Scheme.
	Scheme *runtime.Scheme
	// Paths are files, or folders whose .yaml, .yml and .json files are read.
	Paths []string
	CRDs  []*apiextensionsv1.CustomResourceDefinition
	// ErrorIfPathMissing makes a missing path an error.
	ErrorIfPathMissing bool
	// MaxTime is the time limit until resources are served; default 10 s. PollInterval is the
	// interval of checks; default 10 ms.
	MaxTime      time.Duration
	PollInterval time.Duration
	// CleanUpAfterUse uninstalls the definitions when the environment stops.
	CleanUpAfterUse bool
	// WebhookOptions has the address and the CA of conversion webhooks.
	WebhookOptions WebhookInstallOptions
}

// InstallCRDs reads and creates the definitions, and returns when their resources are served.
func InstallCRDs(config *rest.Config, options CRDInstallOptions) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	if err := ReadCRDFiles(&options); err != nil {
		return nil, fmt.Errorf("unable to read CRD files: %w", err)
	}
	if err := convertByWebhook(options.CRDs, options.Scheme, &options.WebhookOptions); err != nil {
		return nil, err
	}
	if err := CreateCRDs(config, options.CRDs); err != nil {
		return options.CRDs, fmt.Errorf("unable to create CRD instances: %w", err)
	}
	if err := WaitForCRDs(config, options.CRDs, options); err != nil {
		return options.CRDs, fmt.Errorf("something went wrong waiting for CRDs to appear as API resources: %w", err)
	}
	return options.CRDs, nil
}

// ReadCRDFiles adds the definitions of options.Paths to options.CRDs.
func ReadCRDFiles(options *CRDInstallOptions) error {
	if len(options.Paths) == 0 {
		return nil
	}
	found, err := crd.Read(options.Paths, options.ErrorIfPathMissing)
	if err != nil {
		return err
	}
	options.CRDs = mergeCRDs(options.CRDs, found)
	return nil
}

// CreateCRDs creates the definitions, and updates existing ones.
func CreateCRDs(config *rest.Config, crds []*apiextensionsv1.CustomResourceDefinition) error {
	return crd.Create(context.Background(), config, crds)
}

// WaitForCRDs waits until discovery shows the definitions' resources.
func WaitForCRDs(config *rest.Config, crds []*apiextensionsv1.CustomResourceDefinition, options CRDInstallOptions) error {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(options.MaxTime, defaultMaxTime))
	defer cancel()
	return crd.Wait(ctx, config, crds, cmp.Or(options.PollInterval, defaultPollInterval))
}

// UninstallCRDs deletes the definitions of options.
func UninstallCRDs(config *rest.Config, options CRDInstallOptions) error {
	if err := ReadCRDFiles(&options); err != nil {
		return err
	}
	return crd.Delete(context.Background(), config, options.CRDs)
}

func mergeCRDs(a, b []*apiextensionsv1.CustomResourceDefinition) []*apiextensionsv1.CustomResourceDefinition {
	return crd.Unique(slices.Concat(a, b))
}

func mergePaths(a, b []string) []string {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// convertByWebhook points the conversion of kinds that the scheme can convert to the test's webhook
// server. With IgnoreSchemeConvertible, it selects the definitions that have a conversion webhook.
func convertByWebhook(crds []*apiextensionsv1.CustomResourceDefinition, known *runtime.Scheme, options *WebhookInstallOptions) error {
	if len(options.LocalServingCAData) == 0 {
		return nil
	}
	if known == nil {
		known = scheme.Scheme
	}
	convertible, err := convertibleKinds(known)
	if err != nil {
		return err
	}
	url := options.url("/convert")
	for _, d := range crds {
		switch {
		case options.IgnoreSchemeConvertible:
			if d.Spec.Conversion == nil || d.Spec.Conversion.Strategy != apiextensionsv1.WebhookConverter {
				continue
			}
		case !convertible[schema.GroupKind{Group: d.Spec.Group, Kind: d.Spec.Names.Kind}] || d.Spec.PreserveUnknownFields:
			continue
		}
		if d.Spec.Conversion == nil {
			d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{}
		}
		if d.Spec.Conversion.Webhook == nil {
			d.Spec.Conversion.Webhook = &apiextensionsv1.WebhookConversion{ConversionReviewVersions: []string{"v1"}}
		}
		d.Spec.Conversion.Strategy = apiextensionsv1.WebhookConverter
		d.Spec.Conversion.Webhook.ClientConfig = &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: options.LocalServingCAData}
	}
	return nil
}

// convertibleKinds returns the kinds for which the scheme has a hub (a type with the method Hub)
// and a spoke (a type with the methods ConvertTo and ConvertFrom). These methods are those of
// controller-runtime's package conversion.
func convertibleKinds(known *runtime.Scheme) (map[schema.GroupKind]bool, error) {
	hubs, spokes := map[schema.GroupKind]int{}, map[schema.GroupKind]bool{}
	for gvk, t := range known.AllKnownTypes() {
		if strings.HasSuffix(gvk.Kind, "List") || gvk.Version == runtime.APIVersionInternal {
			continue
		}
		pointer := reflect.PointerTo(t)
		if _, hub := pointer.MethodByName("Hub"); hub {
			hubs[gvk.GroupKind()]++
			continue
		}
		_, to := pointer.MethodByName("ConvertTo")
		_, from := pointer.MethodByName("ConvertFrom")
		if to && from {
			spokes[gvk.GroupKind()] = true
		}
	}
	out := map[schema.GroupKind]bool{}
	for kind, n := range hubs {
		if n > 1 {
			return nil, fmt.Errorf("the scheme has %d hubs of %s: there must be one", n, kind)
		}
		out[kind] = spokes[kind]
	}
	return out, nil
}
