package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	upstream "sigs.k8s.io/controller-runtime/pkg/envtest"

	knarr "github.com/knarr-project/knarr/knarrtest/envtest"
)

// The measurements.
const (
	start  = "start"
	shared = "suite, one environment"
	own    = "suite, an environment for each test"
)

// environment is the interface of both packages.
type environment interface {
	Start() (*rest.Config, error)
	Stop() error
}

type side struct {
	name    string
	new     func() environment
	install func(*rest.Config, *apiextensionsv1.CustomResourceDefinition) error
}

var sides = []side{
	{"envtest", func() environment { return &upstream.Environment{} }, func(c *rest.Config, crd *apiextensionsv1.CustomResourceDefinition) error {
		_, err := upstream.InstallCRDs(c, upstream.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}})
		return err
	}},
	{"knarrtest/envtest", func() environment { return &knarr.Environment{} }, func(c *rest.Config, crd *apiextensionsv1.CustomResourceDefinition) error {
		_, err := knarr.InstallCRDs(c, knarr.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}})
		return err
	}},
}

func sideNames() []string { return []string{sides[0].name, sides[1].name} }

type row struct{ key, text, unit string }

func rows(tests int) []row {
	return []row{
		{"start", "start to the first write, new process", "s"},
		{"again", "start to the first write, later in the same process", "s"},
		{"stop", "stop", "s"},
		{"anon", "RssAnon of all processes after the start, test included", "MB"},
		{"rss", "RSS of all processes after the start, test included", "MB"},
		{"shared", fmt.Sprintf("%d tests, one environment", tests), "s"},
		{"sharedRSS", "RSS of all processes after that suite", "MB"},
		{"own", fmt.Sprintf("%d tests, an environment each", tests), "s"},
	}
}

// measure is the work of one process.
func measure(name, what string, tests int) (map[string]float64, error) {
	for _, s := range sides {
		if s.name != name {
			continue
		}
		switch what {
		case start:
			return s.start()
		case shared:
			return s.shared(tests)
		case own:
			return s.own(tests)
		}
	}
	return nil, fmt.Errorf("nothing to measure: %q of %q", what, name)
}

func (s side) start() (map[string]float64, error) {
	out := map[string]float64{}
	for i, key := range []string{"start", "again"} {
		began := time.Now()
		env := s.new()
		config, err := env.Start()
		if err != nil {
			return nil, err
		}
		if err := write(config, "default"); err != nil {
			return nil, err
		}
		out[key] = time.Since(began).Seconds()
		if i == 0 {
			time.Sleep(2 * time.Second) // wait for the work after the start
			out["anon"], out["rss"] = memory()
		}
		began = time.Now()
		if err := env.Stop(); err != nil {
			return nil, err
		}
		out["stop"] = time.Since(began).Seconds()
	}
	return out, nil
}

func (s side) shared(tests int) (map[string]float64, error) {
	began := time.Now()
	env := s.new()
	config, err := env.Start()
	if err != nil {
		return nil, err
	}
	for i := range tests {
		if err := s.test(config, i); err != nil {
			return nil, err
		}
	}
	_, rss := memory()
	if err := env.Stop(); err != nil {
		return nil, err
	}
	return map[string]float64{"shared": time.Since(began).Seconds(), "sharedRSS": rss}, nil
}

func (s side) own(tests int) (map[string]float64, error) {
	began := time.Now()
	for i := range tests {
		env := s.new()
		config, err := env.Start()
		if err != nil {
			return nil, err
		}
		if err := s.test(config, i); err != nil {
			return nil, err
		}
		if err := env.Stop(); err != nil {
			return nil, err
		}
	}
	return map[string]float64{"own": time.Since(began).Seconds()}, nil
}

// test is a small test: it creates a namespace, a definition, ten custom objects and ten
// ConfigMaps, and lists all of them.
func (s side) test(config *rest.Config, i int) error {
	ctx := context.Background()
	k, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	namespace := fmt.Sprintf("test-%d", i)
	if _, err := k.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	group := schema.GroupVersionResource{Group: fmt.Sprintf("group%d.example.com", i), Version: "v1", Resource: "things"}
	if err := s.install(config, definition(group.Group)); err != nil {
		return err
	}
	d, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	for n := range 10 {
		thing := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": group.GroupVersion().String(), "kind": "Thing", "metadata": map[string]any{"name": fmt.Sprintf("thing-%d", n)}, "spec": map[string]any{"size": int64(n)},
		}}
		if _, err := d.Resource(group).Namespace(namespace).Create(ctx, thing, metav1.CreateOptions{}); err != nil {
			return err
		}
		if _, err := k.CoreV1().ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: thing.GetName()}}, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	things, err := d.Resource(group).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	if len(things.Items) != 10 {
		return fmt.Errorf("%d of 10 things", len(things.Items))
	}
	return nil
}

func definition(group string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Thing", ListKind: "ThingList", Plural: "things", Singular: "thing"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: "integer"}}},
				}},
			}}},
		},
	}
}

func write(config *rest.Config, namespace string) error {
	k, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	_, err = k.CoreV1().ConfigMaps(namespace).Create(context.Background(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "first"}}, metav1.CreateOptions{})
	return err
}

// memory sums RssAnon and RSS of this process and its descendants, in MB.
func memory() (anon, rss float64) {
	parents := map[int]int{}
	paths, _ := filepath.Glob("/proc/[0-9]*/status")
	texts := map[int]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		texts[pid], parents[pid] = string(text), int(field(string(text), "PPid:"))
	}
	for pid, text := range texts {
		for at := pid; at > 1; at = parents[at] {
			if at == os.Getpid() {
				anon += field(text, "RssAnon:") * 1024 / 1e6
				rss += field(text, "VmRSS:") * 1024 / 1e6
				break
			}
		}
	}
	return anon, rss
}

func field(text, name string) float64 {
	_, rest, ok := strings.Cut(text, name)
	if !ok {
		return 0
	}
	v, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
	return v
}
