package envtest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/knarrtest/internal/hooks"
)

// WebhookInstallOptions selects the webhook configurations to install, and the address at which the
// suite serves the webhooks.
type WebhookInstallOptions struct {
	// Paths are files, or folders whose .yaml, .yml and .json files are read.
	Paths              []string
	MutatingWebhooks   []*admissionregistrationv1.MutatingWebhookConfiguration
	ValidatingWebhooks []*admissionregistrationv1.ValidatingWebhookConfiguration

	// IgnoreSchemeConvertible points all existing conversion webhooks to the suite's server,
	// whatever types the scheme has.
	IgnoreSchemeConvertible bool
	// IgnoreErrorIfPathMissing ignores missing paths.
	IgnoreErrorIfPathMissing bool

	// LocalServingHost, LocalServingPort and LocalServingCertDir are the address and the
	// certificate of the suite's webhook server. Start sets missing values: 127.0.0.1, a free port,
	// a temporary folder.
	LocalServingHost    string
	LocalServingPort    int
	LocalServingCertDir string
	// LocalServingCAData is the CA of the certificate, PEM. Start sets it.
	LocalServingCAData []byte
	// LocalServingHostExternalName is the host in URLs, if it differs from LocalServingHost.
	LocalServingHostExternalName string

	// MaxTime is the time limit for the configurations to appear; default 10 s. PollInterval has no
	// effect.
	MaxTime      time.Duration
	PollInterval time.Duration
}

// PrepWithoutInstalling selects address and port, and makes the certificate.
func (o *WebhookInstallOptions) PrepWithoutInstalling() error {
	if len(o.LocalServingCAData) > 0 {
		return o.ModifyWebhookDefinitions()
	}
	folder, err := os.MkdirTemp("", "envtest-serving-certs-")
	if err != nil {
		return fmt.Errorf("unable to create directory for webhook serving certs: %w", err)
	}
	o.LocalServingCertDir = folder
	o.LocalServingHost = cmp.Or(o.LocalServingHost, "127.0.0.1")
	server, err := hooks.New(cmp.Or(o.LocalServingHostExternalName, o.LocalServingHost), o.LocalServingPort, folder)
	if err != nil {
		return err
	}
	o.LocalServingPort, o.LocalServingCAData = server.Port, server.CA
	return o.ModifyWebhookDefinitions()
}

// ModifyWebhookDefinitions points the configurations to the suite's server.
func (o *WebhookInstallOptions) ModifyWebhookDefinitions() error {
	configurations := o.configurations()
	o.server().Lead(&configurations)
	return nil
}

// Install prepares, creates the configurations of the paths and of the lists, and waits until the
// API shows them.
func (o *WebhookInstallOptions) Install(config *rest.Config) error {
	if err := o.Read(); err != nil {
		return err
	}
	if err := o.PrepWithoutInstalling(); err != nil {
		return err
	}
	configurations := o.configurations()
	if err := configurations.Create(context.Background(), config); err != nil {
		return err
	}
	return WaitForWebhooks(config, o.MutatingWebhooks, o.ValidatingWebhooks, *o)
}

// Cleanup removes the folder of the certificate.
func (o *WebhookInstallOptions) Cleanup() error {
	if o.LocalServingCertDir == "" {
		return nil
	}
	return os.RemoveAll(o.LocalServingCertDir)
}

// WaitForWebhooks waits until the API shows the configurations.
func WaitForWebhooks(config *rest.Config, mutating []*admissionregistrationv1.MutatingWebhookConfiguration,
	validating []*admissionregistrationv1.ValidatingWebhookConfiguration, options WebhookInstallOptions) error {
	ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(options.MaxTime, defaultMaxTime))
	defer cancel()
	return (&hooks.Configurations{Mutating: mutating, Validating: validating}).Seen(ctx, config)
}

// Read adds the configurations of the paths to the lists. Install calls it.
func (o *WebhookInstallOptions) Read() error {
	configurations := o.configurations()
	if err := configurations.Read(o.Paths, !o.IgnoreErrorIfPathMissing); err != nil {
		return err
	}
	o.MutatingWebhooks, o.ValidatingWebhooks = configurations.Mutating, configurations.Validating
	return nil
}

func (o *WebhookInstallOptions) configurations() hooks.Configurations {
	return hooks.Configurations{Mutating: o.MutatingWebhooks, Validating: o.ValidatingWebhooks}
}

func (o *WebhookInstallOptions) server() *hooks.Server {
	return &hooks.Server{Host: cmp.Or(o.LocalServingHostExternalName, o.LocalServingHost), Port: o.LocalServingPort, CA: o.LocalServingCAData}
}

func (o *WebhookInstallOptions) url(path string) string { return o.server().URL(path) }
