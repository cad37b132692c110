// Package arch tests rules that the compiler does not know: which packages must not import which
// others, and why.
package arch

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/knarr-project/knarr/"

// bans lists forbidden imports, direct or indirect. from and to are package paths below the module
// (a trailing /... includes all below) or full paths in other modules.
var bans = []struct{ from, to, reason string }{
	{"internal/...", "k8s.io/kubernetes/...",
		"the product is written anew; only harnesses in test/ may use upstream's code"},
	{"cmd/...", "k8s.io/kubernetes/...", "the product is written anew"},
	{"internal/config", module + "internal/...", "configuration is plain data"},
	{"internal/api/...", module + "internal/resource/...", "the table knows nothing of behaviour"},
	{"internal/api/...", module + "internal/store/...", "the table is below everything"},
	{"internal/resource/...", module + "internal/store/...", "rules of kinds are pure functions"},
	{"internal/resource/...", module + "internal/client/...", "rules of kinds are pure functions"},
	{"internal/resource/...", module + "internal/admission/...",
		"rules of kinds are below the admission chain"},
	{"internal/cel", module + "internal/admission/...",
		"expressions are below everything that evaluates them"},
	{"internal/cel", module + "internal/apiserver/...",
		"expressions are below everything that evaluates them"},
	{"internal/cel", module + "internal/resource/...",
		"expressions are below everything that evaluates them"},
	{"internal/cel", module + "internal/scheduler/...",
		"expressions are below everything that evaluates them"},
	{"internal/cel", module + "internal/client/...",
		"expressions know their variables, not where those come from"},
	{"internal/cel", module + "internal/store/...",
		"expressions know their variables, not where those come from"},
	{"internal/store/...", module + "internal/cache/...", "the store is the lowest stage"},
	{"internal/store/...", module + "internal/api/...",
		"the store knows keys and bytes, not kinds"},
	{"internal/cache/...", module + "internal/apiserver/...",
		"stages know only what is before them"},
	{"internal/auth/...", module + "internal/apiserver/...",
		"the API server is given its authorizers"},
	{"internal/admission/...", module + "internal/apiserver/...",
		"the API server is given its chain"},
	{"internal/client/...", module + "internal/apiserver/...",
		"components see an interface, not the server"},
	{"internal/apiserver/...", module + "internal/controllers/...",
		"components meet only in the store"},
	{"internal/apiserver/...", module + "internal/scheduler/...",
		"components meet only in the store"},
	{"internal/apiserver/...", module + "internal/kubelet/...",
		"components meet only in the store"},
	{"internal/controller", module + "internal/controllers/...",
		"the loop knows no single controller"},
	{"internal/controllers/...", module + "internal/apiserver/...",
		"components meet only in the store"},
	{"internal/controllers/...", module + "internal/scheduler/...",
		"components meet only in the store"},
	{"internal/controllers/...", module + "internal/kubelet/...",
		"components meet only in the store"},
	{"internal/scheduler/...", module + "internal/kubelet/...",
		"components meet only in the store"},
	{"internal/scheduler/...", module + "internal/apiserver/...",
		"components meet only in the store"},
	{"internal/kubelet/...", module + "internal/apiserver/...",
		"a node agent must run against any API server"},
	{"internal/kubelet/...", module + "internal/scheduler/...",
		"components meet only in the store"},
	{"internal/controlplane", module + "internal/kubelet/...",
		"a control plane runs without a node"},
	{"internal/controlplane", module + "internal/cri/...",
		"a program that contains a control plane contains no container runtime"},
	{"knarrtest/...", module + "internal/cri/...",
		"a test binary contains no container runtime, and builds without one"},
	{"knarrtest/...", module + "internal/run",
		"a test is no process of knarr: it shares the control plane alone"},
	{"knarrtest/...", "sigs.k8s.io/controller-runtime/...",
		"the module's users choose their own controller-runtime"},
	{"cmd/...", "github.com/hanwen/go-fuse/...", "the product mounts no file system of its own"},
	{"internal/process", module + "internal/...", "it starts and stops whatever it is given"},
	{"internal/check", module + "internal/apiserver/registry",
		"a check of files needs rules of the API server, not the server"},
	{"internal/check", module + "internal/store/etcd/...", "a check of files stores nothing"},
	{"internal/check", module + "internal/kubelet/...", "a check of files runs nothing"},
	{"internal/architecture", module + "internal/client/...", "declarations are compared purely"},
	{"internal/architecture", module + "internal/store/...", "declarations are compared purely"},
	{"internal/architecture", module + "internal/apiserver/...", "declarations are compared purely"},
	{"internal/architecture", module + "internal/admission/...", "declarations are compared purely"},
	{"internal/architecture", module + "internal/controller/...",
		"declarations are compared purely"},
	{"internal/insight/...", module + "internal/kubelet/...", "it asks the API, not a node"},
	{"internal/insight/...", module + "internal/store/...", "it asks the API, not the store"},
	{"internal/insight/...", module + "internal/apiserver/...", "it asks the API as its caller"},
	{"internal/cri/...", module + "internal/apiserver/...", "the runtime knows nothing of the API"},
	{"internal/cri/...", module + "internal/client/...", "the runtime knows nothing of the API"},
	{"internal/network/...", module + "internal/kubelet/...",
		"the network is a component of its own"},
	{"internal/proxy/...", module + "internal/kubelet/...", "the proxy is a component of its own"},
	{"internal/loadbalancer/...", module + "internal/kubelet/...",
		"load balancing is a component of its own"},
	{"internal/loadbalancer/...", module + "internal/apiserver/...",
		"components meet only in the store"},
	{"internal/dns/...", module + "internal/kubelet/...", "DNS is a component of its own"},
	{"internal/ui", module + "internal/...",
		"the page is files: all it shows comes from the API"},
	{"internal/volume/...", module + "internal/kubelet/...",
		"the kubelet consumes volumes through its own interface"},
}

// direct lists imports that the named package must not have itself, though it may have them
// indirectly.
var direct = []struct{ from, to, reason string }{
	{"internal/controllers/...", module + "internal/store/...",
		"only the API server touches the store"},
	{"internal/resource/...", "net/http", "rules of kinds are pure functions"},
	{"internal/resource/...", "os/exec", "rules of kinds are pure functions"},
	{"internal/scheduler/...", module + "internal/store/...",
		"only the API server touches the store"},
	{"internal/kubelet/...", module + "internal/store/...",
		"only the API server touches the store"},
}

// doors lists packages that only the named packages may import.
var doors = []struct {
	inside    string
	importers []string
	reason    string
}{
	{"internal/apiserver/h2", []string{transport},
		"the API server must also work with net/http alone"},
	{"internal/apiserver/handshake", []string{transport},
		"the API server must also work with net/http alone"},
	{"internal/apiserver/socket", []string{transport, "internal/apiserver/h2"},
		"it depends on private fields of crypto/tls"},
}

const transport = "internal/apiserver/transport"

// commands are the packages that may build a process.
var commands = []string{"internal/run", "internal/cli/...", "cmd/...", "test/..."}

// builders are the packages that build a control plane.
var builders = []string{"internal/controlplane", "internal/run", "knarrtest/..."}

type pkg struct {
	ImportPath string
	Imports    []string
	Deps       []string
}

func TestPackagesImportOnlyWhatTheDesignAllows(t *testing.T) {
	for _, p := range packages(t) {
		rel := strings.TrimPrefix(p.ImportPath, module)
		for _, b := range bans {
			if matches(b.from, rel) {
				report(t, p.ImportPath, b.to, b.reason, p.Deps)
			}
		}
		for _, b := range direct {
			if matches(b.from, rel) {
				report(t, p.ImportPath, b.to, b.reason, p.Imports)
			}
		}
		for _, d := range doors {
			if !matchesAny(d.importers, rel) {
				report(t, p.ImportPath, module+d.inside, d.reason, p.Imports)
			}
		}
		if !matchesAny(commands, rel) {
			report(t, p.ImportPath, module+"internal/run",
				"only commands build a process", p.Imports)
		}
		if !matchesAny(builders, rel) {
			report(t, p.ImportPath, module+"internal/controlplane",
				"only run and knarrtest build a control plane", p.Imports)
		}
		if inner, ok := strings.CutPrefix(rel, "internal/"); ok && strings.Count(inner, "/") > 1 {
			t.Errorf("%s is nested deeper than one level below internal/<word>", p.ImportPath)
		}
	}
}

// Code that two controllers need belongs into internal/controller.
func TestControllersDoNotImportEachOther(t *testing.T) {
	const area = module + "internal/controllers/"
	for _, p := range packages(t) {
		if !strings.HasPrefix(p.ImportPath, area) {
			continue
		}
		for _, imp := range p.Imports {
			if strings.HasPrefix(imp, area) {
				t.Errorf("%s imports %s: controllers do not import each other", p.ImportPath, imp)
			}
		}
	}
}

func matchesAny(patterns []string, path string) bool {
	for _, pattern := range patterns {
		if matches(pattern, path) {
			return true
		}
	}
	return false
}

func report(t *testing.T, from, to, reason string, imports []string) {
	t.Helper()
	for _, imp := range imports {
		if imp != from && matches(to, imp) {
			t.Errorf("%s imports %s: %s", from, imp, reason)
		}
	}
}

func matches(pattern, path string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "/..."); ok {
		return path == prefix || strings.HasPrefix(path, prefix+"/")
	}
	return path == pattern
}

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,Deps", module+"...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p pkg
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}
