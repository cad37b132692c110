package knarrtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

const (
	// dumpFolder is the environment variable that names a folder for the objects of failed tests.
	dumpFolder = "KNARRTEST_DUMP"
	// mostDumped limits the dump in a test's log, in bytes.
	mostDumped = 256 << 10
	// dumpTimeout is the time limit of a dump.
	dumpTimeout = 10 * time.Second
)

// systemNamespaces are not dumped.
var systemNamespaces = []string{"kube-system", "kube-public", "kube-node-lease"}

// everyNamespace lists objects that controllers create in each namespace.
var everyNamespace = []string{"configmaps/kube-root-ca.crt", "serviceaccounts/default", "services/kubernetes"}

// errFull ends a dump at its size limit.
var errFull = errors.New("full")

// dumpTo writes the objects to the test's log or to the folder.
func (c *Cluster) dumpTo(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.Background(), dumpTimeout)
	defer cancel()
	if text := c.kept.String(); text != "" {
		t.Logf("knarrtest: the cluster's last warnings:\n%s", text)
	}
	if c.admin == nil {
		return
	}
	if folder := os.Getenv(dumpFolder); folder != "" {
		path := filepath.Join(folder, strings.NewReplacer("/", "_", " ", "_").Replace(t.Name())+".yaml")
		if err := c.dumpFile(ctx, path); err != nil {
			t.Logf("knarrtest: %s: %v", dumpFolder, err)
			return
		}
		t.Logf("knarrtest: the cluster's objects are in %s", path)
		return
	}
	out := &bounded{most: mostDumped}
	err := c.Dump(ctx, out)
	note := ""
	if errors.Is(err, errFull) {
		note = fmt.Sprintf("\n# The rest is left out: set %s to a folder for all of it.", dumpFolder)
	} else if err != nil {
		note = fmt.Sprintf("\n# Not everything could be read: %v", err)
	}
	t.Logf("knarrtest: the cluster's objects:\n%s%s", out.String(), note)
}

func (c *Cluster) dumpFile(ctx context.Context, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(c.Dump(ctx, f), f.Close())
}

// Dump writes all custom resources and the objects of all namespaces except the system's, as YAML
// documents. It leaves out managedFields, the values of Secrets, and objects that every namespace
// has.
func (c *Cluster) Dump(ctx context.Context, to io.Writer) error {
	quiet := c.Config()
	quiet.WarningHandlerWithContext = rest.NoWarnings{}
	d, err := discovery.NewDiscoveryClientForConfig(quiet)
	if err != nil {
		return err
	}
	objects, err := dynamic.NewForConfig(quiet)
	if err != nil {
		return err
	}
	lists, err := d.ServerPreferredResources()
	if len(lists) == 0 && err != nil {
		return err
	}
	for _, list := range lists {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for _, r := range list.APIResources {
			if !wanted(group.Group, &r) {
				continue
			}
			found, err := objects.Resource(group.WithResource(r.Name)).List(ctx, metav1.ListOptions{})
			if err != nil {
				continue // continue with the other kinds
			}
			for i := range found.Items {
				if err := write(to, r.Name, &found.Items[i]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// wanted reports whether a kind is dumped. The older API's Events duplicate the newer's, and
// Endpoints contain less than EndpointSlices. Cluster-wide kinds of Kubernetes' own groups exist in
// every cluster.
func wanted(group string, r *metav1.APIResource) bool {
	if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") {
		return false
	}
	if r.Name == "endpoints" || group == "events.k8s.io" || group == "coordination.k8s.io" || group == "metrics.k8s.io" {
		return false
	}
	builtIn := !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
	return r.Namespaced || !builtIn || r.Name == "nodes" || r.Name == "persistentvolumes"
}

func write(to io.Writer, resource string, object *unstructured.Unstructured) error {
	if slices.Contains(systemNamespaces, object.GetNamespace()) || slices.Contains(everyNamespace, resource+"/"+object.GetName()) {
		return nil
	}
	object.SetManagedFields(nil)
	if object.GetKind() == "Secret" {
		for _, field := range []string{"data", "stringData"} {
			values, _, _ := unstructured.NestedMap(object.Object, field)
			for key := range values {
				values[key] = "left out"
			}
			if len(values) > 0 {
				_ = unstructured.SetNestedMap(object.Object, values, field)
			}
		}
	}
	text, err := yaml.Marshal(object.Object)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(to, "---\n%s", text)
	return err
}

// bounded accepts a limited number of bytes.
type bounded struct {
	bytes.Buffer
	most int
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.most {
		return 0, errFull
	}
	return b.Buffer.Write(p)
}
