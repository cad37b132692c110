package settings

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// write makes files with the kind's head and returns their folder.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestKubeadmsFileWorksUnchanged(t *testing.T) {
	s, err := Read("testdata/kubeadm.yaml", "")
	if err != nil {
		t.Fatal(err)
	}
	if got := s.ClusterDNS; len(got) != 1 || got[0] != "10.96.0.10" {
		t.Errorf("clusterDNS is %v", got)
	}
	if got := s.NodeStatusReportFrequency.Duration; got != 5*time.Minute {
		t.Errorf("a zero duration is completed to %s, wanted upstream's 5m", got)
	}
	if s.Has("syncFrequency") {
		t.Error("a zero value counts as set")
	}
	if !s.Has("staticPodPath") || s.Source("staticPodPath") != "testdata/kubeadm.yaml" {
		t.Errorf("the source of staticPodPath is %q", s.Source("staticPodPath"))
	}
}

// leaves lists the fields of a type by path.
func leaves(t reflect.Type, prefix string) (names []string) {
	whole := []reflect.Type{reflect.TypeFor[metav1.Duration](), reflect.TypeFor[logsapi.TimeOrMetaDuration](), reflect.TypeFor[logsapi.OutputRoutingOptions]().Field(1).Type}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case f.Type == reflect.TypeFor[metav1.TypeMeta]():
		case inner.Kind() == reflect.Struct && name == "":
			names = append(names, leaves(inner, prefix)...)
		case inner.Kind() == reflect.Struct && !slices.Contains(whole, inner):
			names = append(names, leaves(inner, prefix+name+".")...)
		default:
			names = append(names, prefix+name)
		}
	}
	return names
}

func TestTheTableHasEveryFieldInUpstreamsOrder(t *testing.T) {
	want := leaves(reflect.TypeFor[kubeletconfig.KubeletConfiguration](), "")
	var have []string
	for _, f := range Fields {
		have = append(have, f.Name)
		if f.Works && len(f.Also) > 0 || f.Works && f.Void {
			t.Errorf("%s works and is fixed", f.Name)
		}
		if !f.Works && !f.Void && f.Note == "" {
			t.Errorf("%s does not work, without a reason", f.Name)
		}
	}
	if slices.Equal(have, want) {
		return
	}
	for _, name := range want {
		if !slices.Contains(have, name) {
			t.Errorf("%s is missing", name)
		}
	}
	for _, name := range have {
		if !slices.Contains(want, name) {
			t.Errorf("%s does not exist", name)
		}
	}
	t.Log("the order is upstream's:", strings.Join(want, " "))
}

func TestTheDefaultsAreUsable(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Fatal(err)
	}
	for name := range Own {
		if !slices.ContainsFunc(Fields, func(f Field) bool { return f.Name == name }) {
			t.Errorf("Own names %s, which does not exist", name)
		}
	}
}

func TestDropInsAreMergedInLexicalOrder(t *testing.T) {
	dir := write(t, map[string]string{
		"base.yaml":      head + "maxPods: 10\nclusterDNS: [10.0.0.1, 10.0.0.2]\nkubeReserved: {cpu: 100m, memory: 1Gi}\n",
		"d/20.conf":      head + "maxPods: 30\n",
		"d/10.conf":      head + "maxPods: 20\nclusterDNS: [10.0.0.3]\nkubeReserved: {cpu: 200m}\n",
		"d/30.yaml":      "not read",
		"d/40/more.conf": head + "podsPerCore: 4\n",
	})
	s, err := Read(filepath.Join(dir, "base.yaml"), filepath.Join(dir, "d"))
	if err != nil {
		t.Fatal(err)
	}
	if s.MaxPods != 30 || s.PodsPerCore != 4 {
		t.Errorf("maxPods is %d, podsPerCore %d", s.MaxPods, s.PodsPerCore)
	}
	if !slices.Equal(s.ClusterDNS, []string{"10.0.0.3"}) {
		t.Errorf("clusterDNS is %v, wanted the later list", s.ClusterDNS)
	}
	if s.KubeReserved["cpu"] != "200m" || s.KubeReserved["memory"] != "1Gi" {
		t.Errorf("kubeReserved is %v, wanted the merged map", s.KubeReserved)
	}
	if got := filepath.Base(s.Source("maxPods")); got != "20.conf" {
		t.Errorf("maxPods comes from %s", got)
	}
}

func TestFaultsNameFieldAndFile(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"an unknown field":               {head + "maxpods: 3\n", `unknown field "maxpods"`},
		"an unknown field inside":        {head + "authentication: {x509: {caFile: /x}}\n", `unknown field "authentication.x509.caFile"`},
		"a repeated field":               {head + "maxPods: 3\nmaxPods: 4\n", `key "maxPods" already set`},
		"text for a number":              {head + "maxPods: many\n", "maxPods: a string is not usable: a number"},
		"another version":                {"apiVersion: kubelet.config.k8s.io/v1alpha1\nkind: KubeletConfiguration\n", "wanted apiVersion: kubelet.config.k8s.io/v1beta1"},
		"no kind":                        {"maxPods: 3\n", "wanted apiVersion"},
		"a number out of range":          {head + "port: 70000\n", "port: 70000 is not usable: 1 to 65535"},
		"an unknown eviction signal":     {head + "evictionHard: {disk: 10%}\n", `evictionHard: "disk" is not usable: one of the signals memory.available`},
		"a soft threshold without grace": {head + "evictionSoft: {memory.available: 300Mi}\n", "evictionSoftGracePeriod: without memory.available"},
		"a fixed field":                  {head + "contentType: application/json\n", `contentType: "application/json" is not usable: only "application/vnd.kubernetes.protobuf" is supported`},
		"a fixed field that is nested":   {head + "logging: {format: json}\n", `logging.format: "json" is not usable: only "text" is supported`},
		"a fixed list":                   {head + "logging: {vmodule: [{filePattern: a, verbosity: 3}]}\n", "logging.vmodule"},
		"an unknown cipher suite":        {head + "tlsCipherSuites: [ROT13]\n", `tlsCipherSuites: "ROT13" is not usable: out of TLS_`},
		"an unknown gate":                {head + "featureGates: {Nope: true}\n", "featureGates: Nope: true is not usable: a feature gate of Kubernetes v1.36"},
		"a gate with another value":      {head + "featureGates: {MemoryQoS: true}\n", "only MemoryQoS: false"},
		"a resource without reservation": {head + "kubeReserved: {gpu: \"1\"}\n", `kubeReserved: "gpu: 1"`},
		"an unknown policy for images":   {head + "imagePullCredentialsVerificationPolicy: Verify\n", `"Verify" is not usable: one of NeverVerify, `},
		"a list of images without use":   {head + "preloadedImagesVerificationAllowlist: [a]\n", "only with imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages"},
		"a listed image with a tag":      {head + "imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: [\"a/*\", \"a:1\"]\n", `preloadedImagesVerificationAllowlist: "a:1" is not usable`},
		"both kinds of grace periods":    {head + "shutdownGracePeriod: 30s\nshutdownGracePeriodByPodPriority: [{priority: 0, shutdownGracePeriodSeconds: 3}]\n", "shutdownGracePeriodByPodPriority"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(write(t, map[string]string{"config.yaml": c.text}), "config.yaml")
			_, err := Read(file, "")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("the error is %v, wanted %q", err, c.want)
			}
			if !strings.Contains(err.Error(), file) && !strings.Contains(c.want, "without") {
				t.Errorf("the error does not name the file: %v", err)
			}
		})
	}
}

func TestEvictionThresholdsThatAreNotGivenAreOff(t *testing.T) {
	file := func(text string) string {
		return filepath.Join(write(t, map[string]string{"config.yaml": head + text}), "config.yaml")
	}
	s, err := Read(file("evictionHard: {memory.available: 1Gi}\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	if s.EvictionHard["memory.available"] != "1Gi" || s.EvictionHard["nodefs.available"] != "0" {
		t.Errorf("thresholds are %v", s.EvictionHard)
	}
	s, err = Read(file("evictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: true\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	if s.EvictionHard["memory.available"] != "1Gi" || s.EvictionHard["nodefs.available"] != "10%" {
		t.Errorf("merged thresholds are %v", s.EvictionHard)
	}
}

func FuzzDecode(f *testing.F) {
	kubeadm, err := os.ReadFile("testdata/kubeadm.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(kubeadm)
	f.Add([]byte(head + "evictionHard: {memory.available: 1Gi}\nfeatureGates: {A: true}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		data, err := decode(text)
		if err != nil {
			return
		}
		s, err := build([]layer{{"a", data}, {"b", data}})
		if err == nil && s.MaxPods < 1 {
			t.Errorf("maxPods %d is accepted", s.MaxPods)
		}
	})
}
