// Package testing replaces k8s.io/apiextensions-apiserver/pkg/cmd/server/testing when run.sh runs
// upstream's integration tests of custom resources. It has the same names, and starts knarr.
package testing

import (
	"errors"
	"io"
	"os"

	"github.com/knarr-project/knarr/test/integration/harness"
	"github.com/spf13/pflag"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/util/compatibility"
	"k8s.io/client-go/rest"
)

// TearDownFunc stops the server.
type TearDownFunc func()

// TestServerInstanceOptions has no options.
type TestServerInstanceOptions struct{}

// TestServer is the server that tests see. Of its options and configuration, they only read the
// location of the store.
type TestServer struct {
	ClientConfig    *rest.Config
	ServerOpts      *options.CustomResourceDefinitionsServerOptions
	TearDownFn      TearDownFunc
	TmpDir          string
	CompletedConfig apiserver.CompletedConfig
}

// Logger is a test or a benchmark.
type Logger interface {
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// NewDefaultTestServerOptions returns the default options.
func NewDefaultTestServerOptions() *TestServerInstanceOptions { return &TestServerInstanceOptions{} }

// StartTestServer starts knarr. It skips a test that needs something that knarr does not have.
func StartTestServer(t Logger, _ *TestServerInstanceOptions, flags []string, _ *storagebackend.Config) (TestServer, error) {
	opts := options.NewCustomResourceDefinitionsServerOptions(io.Discard, io.Discard)
	set := pflag.NewFlagSet("knarr", pflag.ContinueOnError)
	opts.AddFlags(set)
	if err := set.Parse(flags); err != nil {
		return TestServer{}, err
	}
	if why := harness.Unavailable(set); why != "" {
		if skipper, ok := t.(interface{ Skip(...any) }); ok {
			skipper.Skip("knarr does not have ", why)
		}
		return TestServer{}, errors.New("knarr does not have " + why)
	}
	server, err := harness.Start(harness.Settings{Flags: harness.Flags(set)})
	if err != nil {
		return TestServer{}, err
	}
	before, had := os.LookupEnv(storeVariable)
	if err := os.Setenv(storeVariable, server.Etcd); err != nil { // some tests find the store there
		return TestServer{}, err
	}
	end := func() {
		server.Stop()
		if os.Getenv(storeVariable) != server.Etcd {
			return // another server has set it since
		}
		if had { // later tests have their own stores
			_ = os.Setenv(storeVariable, before)
		} else {
			_ = os.Unsetenv(storeVariable)
		}
	}
	opts.RecommendedOptions.Etcd.StorageConfig.Prefix = harness.Prefix
	opts.RecommendedOptions.Etcd.StorageConfig.Transport.ServerList = []string{server.Etcd}
	return TestServer{ClientConfig: server.Config, ServerOpts: opts, TearDownFn: end, CompletedConfig: completed(server, opts)}, nil
}

// storeVariable is the environment variable with the store's URL, as in upstream's harness.
const storeVariable = "KUBE_INTEGRATION_ETCD_URL"

// completed returns the configuration that an upstream server on this store would have.
func completed(server *harness.Server, opts *options.CustomResourceDefinitionsServerOptions) apiserver.CompletedConfig {
	store := opts.RecommendedOptions.Etcd
	generic := genericapiserver.NewRecommendedConfig(apiserver.Codecs)
	generic.ExternalAddress = server.Config.Host[len("https://"):]
	generic.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	generic.RESTOptionsGetter = store.CreateRESTOptionsGetter(&serverstorage.SimpleStorageFactory{StorageConfig: store.StorageConfig}, nil)
	config := apiserver.Config{GenericConfig: generic}
	return config.Complete()
}

// StartTestServerOrDie fails the test if the server does not start.
func StartTestServerOrDie(t Logger, o *TestServerInstanceOptions, flags []string, storage *storagebackend.Config) *TestServer {
	server, err := StartTestServer(t, o, flags, storage)
	if err != nil {
		t.Fatalf("start knarr: %v", err)
	}
	return &server
}
