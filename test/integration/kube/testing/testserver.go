// Package testing replaces k8s.io/kubernetes/cmd/kube-apiserver/app/testing when kube.sh runs
// upstream's integration tests. It has the same names, and starts knarr.
package testing

import (
	"crypto/rsa"
	"crypto/x509"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/knarr-project/knarr/test/integration/harness"
	"github.com/knarr-project/knarr/test/integration/kube"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storageversion"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/test/utils/ktesting"
)

// TearDownFunc stops the server.
type TearDownFunc func()

// TestServerInstanceOptions has the fields of upstream's harness.
type TestServerInstanceOptions struct {
	SkipHealthzCheck       bool
	EnableCertAuth         bool
	StorageVersionWrapFunc func(storageversion.Manager) storageversion.Manager
	ProxyCA                *ProxyCA
	BinaryVersion          string
	RequestTimeout         time.Duration
}

// TestServer is the server that tests see.
type TestServer struct {
	ClientConfig      *rest.Config
	ServerOpts        *options.ServerRunOptions
	TearDownFn        TearDownFunc
	TmpDir            string
	EtcdClient        *clientv3.Client
	EtcdStoragePrefix string
}

// Logger is a test or a benchmark.
type Logger interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
	Cleanup(func())
}

// ProxyCA is the authority of the proxies that name users in headers.
type ProxyCA struct {
	ProxySigningCert *x509.Certificate
	ProxySigningKey  *rsa.PrivateKey
}

// NewDefaultTestServerOptions returns the default options.
func NewDefaultTestServerOptions() *TestServerInstanceOptions {
	return &TestServerInstanceOptions{EnableCertAuth: true}
}

// StartTestServer starts knarr. It skips a test that needs something that knarr does not have.
func StartTestServer(t ktesting.TB, o *TestServerInstanceOptions, flags []string, storage *storagebackend.Config) (result TestServer, err error) {
	if o == nil {
		o = NewDefaultTestServerOptions()
	}
	if o.StorageVersionWrapFunc != nil || o.BinaryVersion != "" {
		t.Skip("knarr is another process, of one version")
	}
	// t.TempDir does not work, because some servers outlive the test that started them.
	if result.TmpDir, err = os.MkdirTemp("", "knarr-integration-files-"); err != nil {
		return result, err
	}
	opts := kube.NewOptions()
	opts.Etcd.StorageConfig = *storage
	opts.ServiceClusterIPRanges = "10.0.0.0/16"
	if o.RequestTimeout > 0 {
		opts.GenericServerRunOptions.RequestTimeout = o.RequestTimeout
	}
	if err := kube.SigningKey(opts, result.TmpDir); err != nil {
		return result, err
	}
	if o.EnableCertAuth {
		if err := certificates(opts, o, result.TmpDir); err != nil {
			return result, err
		}
	}
	set := kube.FlagSet(opts)
	if err := set.Parse(flags); err != nil {
		return result, err
	}
	if why := harness.Unavailable(nil); why != "" {
		t.Skip("knarr does not have ", why)
	}
	server, err := kube.Start(opts, set)
	if err != nil {
		if kube.IsMissing(err) {
			t.Skip(err)
		}
		return result, err
	}
	*storage = opts.Etcd.StorageConfig
	client, _, err := GetEtcdClients(storage.Transport)
	if err != nil {
		server.Stop()
		return result, err
	}
	result.ClientConfig, result.ServerOpts, result.EtcdClient, result.EtcdStoragePrefix = server.Config, opts, client, kube.Prefix
	dir := result.TmpDir
	result.TearDownFn = func() {
		client.Close()
		server.StopGracefully()
		_ = os.RemoveAll(dir)
	}
	return result, nil
}

// certificates creates the authorities of clients, and of proxies that name users in headers.
func certificates(opts *options.ServerRunOptions, o *TestServerInstanceOptions, dir string) error {
	clients, proxies := filepath.Join(dir, "client-ca.crt"), filepath.Join(dir, "proxy-ca.crt")
	if err := kube.Authority(clients, "client-ca"); err != nil {
		return err
	}
	opts.Authentication.ClientCert.ClientCA = clients
	headers := opts.Authentication.RequestHeader
	headers.ClientCAFile, headers.AllowedNames = proxies, []string{"ash", "misty", "brock"}
	headers.UsernameHeaders, headers.UIDHeaders = []string{"x-remote-user"}, []string{"x-remote-uid"}
	headers.GroupHeaders, headers.ExtraHeaderPrefixes = []string{"x-remote-group"}, []string{"x-remote-extra-"}
	if o.ProxyCA != nil {
		return kube.AuthorityOf(proxies, "", o.ProxyCA.ProxySigningCert, o.ProxyCA.ProxySigningKey)
	}
	return kube.Authority(proxies, "front-proxy-ca")
}

// GetEtcdClients returns clients of a store.
func GetEtcdClients(config storagebackend.TransportConfig) (*clientv3.Client, clientv3.KV, error) {
	settings := clientv3.Config{Endpoints: config.ServerList, DialTimeout: time.Minute}
	if config.CertFile != "" || config.KeyFile != "" || config.TrustedCAFile != "" {
		keys := transport.TLSInfo{CertFile: config.CertFile, KeyFile: config.KeyFile, TrustedCAFile: config.TrustedCAFile}
		var err error
		if settings.TLS, err = keys.ClientConfig(); err != nil {
			return nil, nil, err
		}
	}
	client, err := clientv3.New(settings)
	if err != nil {
		return nil, nil, err
	}
	return client, clientv3.NewKV(client), nil
}

// StartTestServerOrDie fails the test if the server does not start.
func StartTestServerOrDie(t testing.TB, o *TestServerInstanceOptions, flags []string, storage *storagebackend.Config) *TestServer {
	server, err := StartTestServer(t, o, flags, storage)
	if err != nil {
		t.Fatalf("start knarr: %v", err)
	}
	return &server
}
