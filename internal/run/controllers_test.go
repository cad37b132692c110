package run

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/config"
)

func TestRootCAForPodsByPrecedence(t *testing.T) {
	write := func(text string) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "ca.crt")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file, flag := write("file"), write("flag")
	for name, tc := range map[string]struct {
		tls        rest.TLSClientConfig
		flag, want string
	}{
		"that of a kubeconfig's data":                    {rest.TLSClientConfig{CAData: []byte("data")}, "", "data"},
		"that of its file":                               {rest.TLSClientConfig{CAFile: file}, "", "file"},
		"data goes before a file, as for the connection": {rest.TLSClientConfig{CAData: []byte("data"), CAFile: file}, "", "data"},
		"that of the flag":                               {rest.TLSClientConfig{CAData: []byte("data"), CAFile: file}, flag, "flag"},
		"none":                                           {rest.TLSClientConfig{}, "", ""},
	} {
		c := config.Default()
		c.Controllers.RootCA = tc.flag
		cfg, err := aloneConfig(&c, &rest.Config{TLSClientConfig: tc.tls})
		if err != nil || string(cfg.CACert) != tc.want {
			t.Errorf("%s: %q, %v", name, cfg.CACert, err)
		}
	}
}

func TestControllersAllocateNodeCIDRsByDefault(t *testing.T) {
	for allocate, want := range map[bool]string{true: "10.42.0.0/16", false: ""} {
		c := config.Default()
		c.Controllers.AllocateNodeCIDRs = allocate
		if cfg, err := aloneConfig(&c, &rest.Config{}); err != nil || cfg.PodCIDR != want {
			t.Errorf("--allocate-node-cidrs=%v: %q, %v", allocate, cfg.PodCIDR, err)
		}
	}
}
