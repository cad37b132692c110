package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func flagsOf(c *Config) *pflag.FlagSet {
	return flagsOfGroups(c, Process|Server|Controlling|NodeAlone|Node|Joining)
}

func flagsOfGroups(c *Config, groups Groups) *pflag.FlagSet {
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	c.AddFlags(f, groups)
	return f
}

func TestSettingsIncludeTheFile(t *testing.T) {
	c := Default()
	flags := flagsOf(&c)
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte("pod-cidr: 10.99.0.0/16\naudit-log-maxage: 7\nanonymous-auth: false\nenable-admission-plugins: [AlwaysPullImages]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ReadFile(flags, path); err != nil {
		t.Fatal(err)
	}
	settings := Settings(flags)
	for name, want := range map[string]string{
		"pod-cidr": "10.99.0.0/16", "audit-log-maxage": "7", "anonymous-auth": "false", "enable-admission-plugins": "[AlwaysPullImages]", "request-timeout": "1m0s",
	} {
		if settings[name] != want {
			t.Errorf("%s is %q, want %q", name, settings[name], want)
		}
	}
}

func TestSettingsAreComplete(t *testing.T) {
	c := Default()
	var marks []string
	mark := 7000
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		mark++
		text := fmt.Sprint(mark)
		switch p := v.Addr().Interface().(type) {
		case *metav1.Duration:
			p.Duration = time.Duration(mark) * 24 * time.Hour
			text = p.Duration.String()
		case *string:
			*p = text
		case *[]string:
			*p = []string{text}
		case *map[string]string:
			*p = map[string]string{"k": text}
		case *int:
			*p = mark
		case *[]int32:
			*p = []int32{int32(mark)}
		case *float32:
			*p = float32(mark)
		case *float64:
			*p = float64(mark)
		case *bool, **bool: // two values are not enough to tell them apart
			return
		default:
			if v.Kind() != reflect.Struct {
				t.Fatalf("%s: a %s", path, v.Type())
			}
			for i := range v.NumField() {
				if !v.Type().Field(i).IsExported() {
					continue // a file cannot set it
				}
				walk(v.Field(i), path+"."+v.Type().Field(i).Name)
			}
			return
		}
		// Token is a secret; components that run alone have --kubeconfig.
		if path != ".Token" && path != ".Kubeconfig" {
			marks = append(marks, path+" "+text)
		}
	}
	walk(reflect.ValueOf(&c).Elem(), "")
	var values []string
	// The two sets share some names.
	for _, flags := range []*pflag.FlagSet{flagsOf(&c), flagsOfGroups(&c, ControllersAlone)} {
		values = slices.AppendSeq(values, maps.Values(Settings(flags)))
	}
	for _, m := range marks {
		var path, text string
		if _, err := fmt.Sscan(m, &path, &text); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(values, func(v string) bool { return v == text || v == "["+text+"]" || v == "[k="+text+"]" }) {
			t.Errorf("%s is missing", path)
		}
	}
}

func TestSettingsHideSecrets(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Config)
		flag   string
		want   string
	}{
		"the token that joins":         {func(c *Config) { c.Token = "abc.def" }, "token", "<hidden>"},
		"no token":                     {func(*Config) {}, "token", ""},
		"a password in a URL":          {func(c *Config) { c.ManifestURL = "https://me:secret@host/x" }, "manifest-url", "https://hidden@host/x"},
		"a key after a URL's path":     {func(c *Config) { c.ManifestURL = "https://host/x?key=secret" }, "manifest-url", "https://host/x?hidden"},
		"a password in a list of URLs": {func(c *Config) { c.StoreEndpoints = []string{"https://a:2379", "https://me:secret@b:2379"} }, "store", "[https://a:2379,https://hidden@b:2379]"},
		"a password with a comma":      {func(c *Config) { c.ManifestURL = "https://me:se,cret@host/x" }, "manifest-url", "https://hidden@host/x"},
		"a comma in a list of URLs":    {func(c *Config) { c.StoreEndpoints = []string{"https://me:se,cret@b:2379", "https://c:2379"} }, "store", "[https://hidden@b:2379,https://c:2379]"},
		"a slash in a password":        {func(c *Config) { c.ManifestURL = "https://me:se/cret@host/x" }, "manifest-url", "<hidden>"},
		"an invalid URL":               {func(c *Config) { c.Join = "https://me:se cret%@host" }, "join", "<hidden>"},
		"a URL without secrets":        {func(c *Config) { c.Join = "https://host:6443" }, "join", "https://host:6443"},
	} {
		t.Run(name, func(t *testing.T) {
			c := Default()
			flags := flagsOf(&c)
			tc.change(&c)
			before := slices.Clone(c.StoreEndpoints)
			if got := Settings(flags)[tc.flag]; got != tc.want || !slices.Equal(c.StoreEndpoints, before) {
				t.Errorf("--%s is %q, want %q", tc.flag, got, tc.want)
			}
		})
	}
}

func TestFlagsWinOverTheFile(t *testing.T) {
	c := Default()
	flags := flagsOf(&c)
	pairs := []string{"a.crt,a.key:a.example.com,b.example.com", "b.crt,b.key"}
	if err := flags.Parse([]string{"--tls-sni-cert-key", pairs[0], "--tls-sni-cert-key", pairs[1], "--enable-admission-plugins=A,B", "--max-pods=7", "--oidc-required-claim=a=b", "--listen=[::]:6443"}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "config")
	file := "max-pods: 9\nlisten: 127.0.0.1:7443\nenable-admission-plugins: [C]\ndisable-admission-plugins: [D]\ntls-sni-cert-key: [x]\noidc-required-claim: {a: c, d: e}\n"
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ReadFile(flags, path); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(c.APIServer.TLSNamed, pairs) || !slices.Equal(c.EnableAdmission, []string{"A", "B"}) || !slices.Equal(c.DisableAdmission, []string{"D"}) ||
		c.MaxPods != 7 || c.Listen != "[::]:6443" || !maps.Equal(c.APIServer.Authentication.OIDC.RequiredClaims, map[string]string{"a": "b"}) {
		t.Errorf("got %v", c)
	}
}
