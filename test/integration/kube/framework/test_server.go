// Package framework replaces one file of k8s.io/kubernetes/test/integration/framework when kube.sh
// runs upstream's integration tests: the file that starts a server.
package framework

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/knarr-project/knarr/test/integration/harness"
	"github.com/knarr-project/knarr/test/integration/kube"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/controlplane"
)

// TestServerSetup changes the server before it starts.
type TestServerSetup struct {
	ModifyServerRunOptions func(*options.ServerRunOptions)
	ModifyServerConfig     func(*controlplane.Config)
}

// TearDownFunc stops the server.
type TearDownFunc func()

// StartTestServer starts knarr. It skips a test that needs something that knarr does not have, or
// that accesses the server's internals.
func StartTestServer(_ context.Context, t testing.TB, setup TestServerSetup) (kubernetes.Interface, *rest.Config, TearDownFunc) {
	var injected *kube.Injected
	if setup.ModifyServerConfig != nil {
		var ok bool
		if injected, ok = kube.NewInjected(setup.ModifyServerConfig); !ok {
			t.Skip("knarr is another process")
		}
	}
	dir, err := os.MkdirTemp("", "knarr-integration-files-")
	if err != nil {
		t.Fatal(err)
	}
	opts := kube.NewOptions()
	if err := prepare(opts, dir); err != nil {
		t.Fatal(err)
	}
	if setup.ModifyServerRunOptions != nil {
		setup.ModifyServerRunOptions(opts)
	}
	if injected != nil {
		if err := injected.Serve(opts, dir); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(injected.Close)
	}
	if why := harness.Unavailable(nil); why != "" {
		t.Skip("knarr does not have ", why)
	}
	server, err := kube.Start(opts, kube.FlagSet(opts))
	if kube.IsMissing(err) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("start knarr: %v", err)
	}
	config := server.Config
	if injected != nil {
		injected.Client(config)
	}
	config.CAFile, config.CAData = server.CAFile, nil
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		server.Stop()
		t.Fatal(err)
	}
	return client, config, func() {
		server.Stop()
		_ = os.RemoveAll(dir)
	}
}

// prepare sets the options to the values that a test starts from.
func prepare(opts *options.ServerRunOptions, dir string) error {
	clients, proxies := filepath.Join(dir, "client-ca.crt"), filepath.Join(dir, "proxy-ca.crt")
	if err := kube.Authority(clients, "client-ca"); err != nil {
		return err
	}
	if err := kube.Authority(proxies, "front-proxy-ca"); err != nil {
		return err
	}
	opts.ServiceClusterIPRanges = "10.0.0.0/24"
	opts.SecureServing.ServerCert.CertDirectory = dir
	opts.Authentication.ClientCert.ClientCA = clients
	headers := opts.Authentication.RequestHeader
	headers.ClientCAFile, headers.AllowedNames = proxies, []string{"kube-aggregator"}
	headers.UsernameHeaders, headers.GroupHeaders, headers.ExtraHeaderPrefixes = []string{"X-Remote-User"}, []string{"X-Remote-Group"}, []string{"X-Remote-Extra-"}
	opts.Authentication.APIAudiences = []string{kube.Issuer}
	opts.Authorization.Modes = []string{"Node", "RBAC"}
	return kube.SigningKey(opts, dir)
}
