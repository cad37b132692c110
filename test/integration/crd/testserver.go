// Package testing takes the place of k8s.io/apiextensions-apiserver/pkg/cmd/server/testing when run.sh runs upstream's integration tests of
// custom resources: the same names, behind which knarr is started.
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

// TearDownFunc ends the server.
type TearDownFunc func()

// TestServerInstanceOptions has nothing that could be chosen.
type TestServerInstanceOptions struct{}

// TestServer is what the tests know of the server. Of its options and configuration, they look at where the store is.
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

// NewDefaultTestServerOptions are those that a test has which has none.
func NewDefaultTestServerOptions() *TestServerInstanceOptions { return &TestServerInstanceOptions{} }

// StartTestServer starts knarr. A test that wants what knarr can not be is skipped.
func StartTestServer(t Logger, _ *TestServerInstanceOptions, flags []string, _ *storagebackend.Config) (TestServer, error) {
	opts := options.NewCustomResourceDefinitionsServerOptions(io.Discard, io.Discard)
	set := pflag.NewFlagSet("knarr", pflag.ContinueOnError)
	opts.AddFlags(set)
	if err := set.Parse(flags); err != nil {
		return TestServer{}, err
	}
	if why := harness.Unavailable(set); why != "" {
		if skipper, ok := t.(interface{ Skip(...any) }); ok {
			skipper.Skip("knarr is not there with ", why)
		}
		return TestServer{}, errors.New("knarr is not there with " + why)
	}
	server, err := harness.Start(harness.Settings{Flags: harness.Flags(set)})
	if err != nil {
		return TestServer{}, err
	}
	before, had := os.LookupEnv(storeVariable)
	if err := os.Setenv(storeVariable, server.Etcd); err != nil { // some tests look there for the store
		return TestServer{}, err
	}
	end := func() {
		server.Stop()
		if os.Getenv(storeVariable) != server.Etcd {
			return // another server's since
		}
		if had { // the tests that come after this one have a store each
			_ = os.Setenv(storeVariable, before)
		} else {
			_ = os.Unsetenv(storeVariable)
		}
	}
	opts.RecommendedOptions.Etcd.StorageConfig.Prefix = harness.Prefix
	opts.RecommendedOptions.Etcd.StorageConfig.Transport.ServerList = []string{server.Etcd}
	return TestServer{ClientConfig: server.Config, ServerOpts: opts, TearDownFn: end, CompletedConfig: completed(server, opts)}, nil
}

// storeVariable names the store in the environment, as upstream's harness does.
const storeVariable = "KUBE_INTEGRATION_ETCD_URL"

// completed is the configuration of an upstream server that had this store.
func completed(server *harness.Server, opts *options.CustomResourceDefinitionsServerOptions) apiserver.CompletedConfig {
	store := opts.RecommendedOptions.Etcd
	generic := genericapiserver.NewRecommendedConfig(apiserver.Codecs)
	generic.ExternalAddress = server.Config.Host[len("https://"):]
	generic.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	generic.RESTOptionsGetter = store.CreateRESTOptionsGetter(&serverstorage.SimpleStorageFactory{StorageConfig: store.StorageConfig}, nil)
	config := apiserver.Config{GenericConfig: generic}
	return config.Complete()
}

// StartTestServerOrDie ends the test when the server does not start.
func StartTestServerOrDie(t Logger, o *TestServerInstanceOptions, flags []string, storage *storagebackend.Config) *TestServer {
	server, err := StartTestServer(t, o, flags, storage)
	if err != nil {
		t.Fatalf("start knarr: %v", err)
	}
	return &server
}
