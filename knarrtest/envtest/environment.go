package envtest

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// StartTimeout and StopTimeout are the seconds that a suite may wait for Start and Stop.
	StartTimeout = 60
	StopTimeout  = 60

	envUseExisting = "USE_EXISTING_CLUSTER"
	envAttach      = "KUBEBUILDER_ATTACH_CONTROL_PLANE_OUTPUT"
)

// Environment is a control plane for tests with everything installed in it. The zero Environment is
// ready to Start.
type Environment struct {
	// ControlPlane is the API server. Its arguments may be set before Start.
	ControlPlane ControlPlane

	// Scheme selects the CustomResourceDefinitions with a conversion webhook: those for which it
	// has a hub and a type that converts to it. Nil selects client-go's scheme.
	Scheme *runtime.Scheme

	// Config is the admin's configuration. Start sets it, unless an existing cluster is used and
	// Config is set.
	Config *rest.Config
	// KubeConfig is the same as a kubeconfig file. Start sets it if it is empty.
	KubeConfig []byte

	CRDInstallOptions     CRDInstallOptions
	WebhookInstallOptions WebhookInstallOptions

	// ErrorIfCRDPathMissing makes a missing path an error of Start.
	ErrorIfCRDPathMissing bool
	// CRDs and CRDDirectoryPaths are installed in addition to those of CRDInstallOptions.
	CRDs              []*apiextensionsv1.CustomResourceDefinition
	CRDDirectoryPaths []string

	// UseExistingCluster uses an existing cluster instead of starting one: that of Config, or that
	// of kubectl's kubeconfig.
	UseExistingCluster *bool

	// AttachControlPlaneOutput shows the API server's log on the standard error.
	AttachControlPlaneOutput bool

	// These fields have no effect, because there are no binaries and no processes to start. They
	// exist so that suites compile.
	DownloadBinaryAssets         bool
	DownloadBinaryAssetsVersion  string
	DownloadBinaryAssetsIndexURL string
	BinaryAssetsDirectory        string
	ControlPlaneStartTimeout     time.Duration
	ControlPlaneStopTimeout      time.Duration
}

// Start starts the API server and installs webhooks and definitions. It returns Config.
func (te *Environment) Start() (*rest.Config, error) {
	if te.useExistingCluster() {
		if err := te.findCluster(); err != nil {
			return nil, err
		}
	} else if err := te.startControlPlane(); err != nil {
		return nil, fmt.Errorf("unable to start control plane itself: %w", err)
	}
	if len(te.KubeConfig) == 0 {
		var err error
		if te.KubeConfig, err = kubeconfigOf(te.Config); err != nil {
			return nil, err
		}
	}
	if te.Scheme == nil {
		te.Scheme = scheme.Scheme
	}
	// Conversion needs the webhooks' address and CA.
	if err := te.WebhookInstallOptions.PrepWithoutInstalling(); err != nil {
		return nil, err
	}
	te.CRDInstallOptions.CRDs = mergeCRDs(te.CRDInstallOptions.CRDs, te.CRDs)
	te.CRDInstallOptions.Paths = mergePaths(te.CRDInstallOptions.Paths, te.CRDDirectoryPaths)
	te.CRDInstallOptions.ErrorIfPathMissing = te.CRDInstallOptions.ErrorIfPathMissing || te.ErrorIfCRDPathMissing
	te.CRDInstallOptions.WebhookOptions = te.WebhookInstallOptions
	if te.CRDInstallOptions.Scheme == nil {
		te.CRDInstallOptions.Scheme = te.Scheme
	}
	crds, err := InstallCRDs(te.Config, te.CRDInstallOptions)
	if err != nil {
		return te.Config, fmt.Errorf("unable to install CRDs onto control plane: %w", err)
	}
	te.CRDs = crds
	if err := te.WebhookInstallOptions.Install(te.Config); err != nil {
		return nil, fmt.Errorf("unable to install webhooks onto control plane: %w", err)
	}
	return te.Config, nil
}

// Stop uninstalls the definitions if CRDInstallOptions.CleanUpAfterUse is set, removes the
// webhooks' certificates, and ends the API server.
func (te *Environment) Stop() error {
	var errs []error
	if te.CRDInstallOptions.CleanUpAfterUse && te.Config != nil {
		errs = append(errs, UninstallCRDs(te.Config, te.CRDInstallOptions))
	}
	errs = append(errs, te.WebhookInstallOptions.Cleanup())
	if !te.useExistingCluster() {
		errs = append(errs, te.ControlPlane.Stop())
	}
	return errors.Join(errs...)
}

// AddUser gives a user access to the API server that Start has started. base provides further
// settings of the result.
func (te *Environment) AddUser(user User, base *rest.Config) (*AuthenticatedUser, error) {
	return te.ControlPlane.AddUser(user, base)
}

func (te *Environment) startControlPlane() error {
	attach, _ := strconv.ParseBool(os.Getenv(envAttach))
	if te.AttachControlPlaneOutput || attach {
		server := te.ControlPlane.GetAPIServer()
		if server.Err == nil {
			server.Err = os.Stderr
		}
	}
	if err := te.ControlPlane.Start(); err != nil {
		return err
	}
	te.Config = te.ControlPlane.cluster.Config()
	te.Config.QPS, te.Config.Burst = 1000, 2000
	return nil
}

func (te *Environment) useExistingCluster() bool {
	if te.UseExistingCluster != nil {
		return *te.UseExistingCluster
	}
	use, _ := strconv.ParseBool(os.Getenv(envUseExisting))
	return use
}

// findCluster reads the kubeconfig as kubectl does. In a pod it uses the pod's own credentials.
func (te *Environment) findCluster() error {
	if te.Config != nil {
		return nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if _, set := os.LookupEnv(clientcmd.RecommendedConfigPathEnvVar); !set {
		home, _ := os.UserHomeDir()
		if _, err := os.Stat(filepath.Join(home, ".kube", "config")); err != nil {
			if config, err := rest.InClusterConfig(); err == nil {
				te.Config = config
				return nil
			}
		}
	}
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return fmt.Errorf("unable to get configuration for existing cluster: %w", err)
	}
	config.QPS, config.Burst = cmp.Or(config.QPS, 20), cmp.Or(config.Burst, 30)
	te.Config = config
	return nil
}

// SetupEnvtestDefaultBinaryAssetsDirectory returns the folder where setup-envtest keeps binaries.
// This package does not use it.
func SetupEnvtestDefaultBinaryAssetsDirectory() (string, error) {
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "kubebuilder-envtest"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "share", "kubebuilder-envtest"), nil
}
