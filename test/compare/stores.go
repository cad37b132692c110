package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/yaml"
)

// Servers take turns on one etcd data folder. The first writes an object of every kind. Each later
// one must show every object, in every version, as its predecessor did, and be able to change it.

// owner is one of these servers.
type owner struct {
	who     string
	outside bool // knarr on upstream's etcd, instead of its own
}

var lineage = [][]owner{
	{{who: theirs}, {who: ours}, {who: theirs}, {who: ours, outside: true}},
	{{who: ours}, {who: theirs}, {who: ours}},
}

//go:embed stores.yaml
var storeCorpus []byte

//go:embed apidiff/corpus/*.yaml
var corpusFiles embed.FS

// stores runs all rows of owners.
func stores(ctx context.Context, o *options) ([]result, error) {
	var results []result
	for i, row := range lineage {
		lines, err := runOwners(ctx, o, filepath.Join(o.state, fmt.Sprintf("%s-%d", storeLayout, i+1)), row)
		if err != nil {
			return results, err
		}
		results = append(results, lines...)
	}
	return results, nil
}

// handedStore is one data folder with its keys, and the objects that its last owner has shown.
type handedStore struct {
	o     *options
	dir   string
	keys  *keys
	port  int
	shown map[string]*unstructured.Unstructured
}

func runOwners(ctx context.Context, o *options, dir string, row []owner) (results []result, err error) {
	defer sweep()
	h := &handedStore{o: o, dir: dir, port: freePort()}
	if err := os.MkdirAll(filepath.Join(dir, "pki"), 0o700); err != nil {
		return nil, err
	}
	if h.keys, err = clusterKeys(filepath.Join(dir, "pki")); err != nil {
		return nil, err
	}
	if err := h.writeEncryption(); err != nil {
		return nil, err
	}
	line := func(what string, err error) { results = append(results, result{filepath.Base(dir), what, err}) }
	for i, owner := range row {
		name := owner.who
		if owner.outside {
			name += " beside upstream's etcd"
		}
		progress("%s: %s", filepath.Base(dir), name)
		m, err := h.start(ctx, i, owner)
		if err != nil {
			line(name+" starts on the folder", err)
			return results, ctx.Err()
		}
		if i == 0 {
			line(name+" writes an object of every kind", h.write(ctx, m))
			err = h.list(ctx, m)
		} else {
			before := h.shown
			if err = h.list(ctx, m); err == nil {
				line(fmt.Sprintf("%s shows what %s has written (%d objects)", name, row[i-1].who, len(before)), differences(before, h.shown))
				line(name+" can change all of it", h.touch(ctx, m))
				err = h.list(ctx, m)
			}
		}
		m.stop()
		if err != nil {
			return results, fmt.Errorf("%s: %w", name, err)
		}
	}
	line("what is to be secret lies encrypted", h.wantEncrypted())
	return results, ctx.Err()
}

// secretText is the content of the encrypted Secrets and ConfigMaps. It must not appear in the
// store.
const secretText = "this-must-not-be-found-in-the-store"

func (h *handedStore) encryption() string { return filepath.Join(h.dir, "encryption.yaml") }

func (h *handedStore) writeEncryption() error {
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return err
	}
	text := strings.ReplaceAll(`
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- {resources: [secrets], providers: [{aescbc: {keys: [{name: one, secret: KEY}]}}, {identity: {}}]}
- {resources: [configmaps], providers: [{secretbox: {keys: [{name: two, secret: KEY}]}}, {identity: {}}]}
- {resources: [seas.store.example.com], providers: [{aesgcm: {keys: [{name: three, secret: KEY}]}}, {identity: {}}]}
`, "KEY", base64.StdEncoding.EncodeToString(key))
	return os.WriteFile(h.encryption(), []byte(text), 0o600)
}

// start starts one owner. All have the same address, since the store contains it.
func (h *handedStore) start(ctx context.Context, i int, of owner) (m *mixed, err error) {
	dir := filepath.Join(h.dir, fmt.Sprintf("%s-%d", filepath.Base(h.dir), i+1))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	m = &mixed{layout: layout{name: filepath.Base(dir)}, o: h.o, dir: dir, keys: h.keys, server: fmt.Sprintf("https://127.0.0.1:%d", h.port)}
	defer func() {
		if err != nil {
			m.stop()
		}
	}()
	if err := h.keys.kubeconfig(m.admin(), m.server, "admin"); err != nil {
		return nil, err
	}
	extra := []string{"--encryption-provider-config", h.encryption()}
	store := ""
	if of.outside || of.who == theirs {
		if store, err = m.startEtcd(filepath.Join(h.dir, "data", "etcd")); err != nil {
			return nil, err
		}
	}
	switch {
	case of.who == theirs:
		err = m.launch("api", filepath.Join(h.o.upstream, "kube-apiserver"), append(theirAPIFlags(h.keys, store, h.port), extra...)...)
	case of.outside:
		err = m.startOurAPI(filepath.Join(h.dir, "outside"), h.port, append(extra, "--store", store))
	default:
		err = m.startOurAPI(filepath.Join(h.dir, "data"), h.port, extra)
	}
	if err != nil {
		return nil, err
	}
	return m, waitReady(ctx, m.admin(), m.processes...)
}

// apiClient accesses every kind of a server.
type apiClient struct {
	dynamic.Interface
	discovery *discovery.DiscoveryClient
}

func (m *mixed) client() (*apiClient, error) {
	config, err := clientcmd.BuildConfigFromFlags("", m.admin())
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	c := &apiClient{}
	if c.Interface, err = dynamic.NewForConfig(config); err != nil {
		return nil, err
	}
	c.discovery, err = discovery.NewDiscoveryClientForConfig(config)
	return c, err
}

// write creates the corpus: each object in its own namespace, with its status.
func (h *handedStore) write(ctx context.Context, m *mixed) error {
	c, err := m.client()
	if err != nil {
		return err
	}
	objects, err := storeObjects()
	if err != nil {
		return err
	}
	var errs []error
	for i, obj := range objects {
		namespace := fmt.Sprintf("store-%d", i)
		if err := c.space(ctx, namespace); err != nil {
			return err
		}
		if err := c.writeOne(ctx, namespace, obj); err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", obj.GetKind(), obj.GetName(), err))
		}
	}
	return errors.Join(errs...)
}

func (c *apiClient) space(ctx context.Context, namespace string) error {
	for _, obj := range []map[string]any{
		{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace}},
		{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": map[string]any{"name": "default", "namespace": namespace}},
	} {
		u := &unstructured.Unstructured{Object: obj}
		res := schema.GroupVersionResource{Version: "v1", Resource: strings.ToLower(u.GetKind()) + "s"}
		if _, err := c.Resource(res).Namespace(u.GetNamespace()).Create(ctx, u, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// storeObjects returns the valid objects of apidiff and some that it leaves out. Each gets its own
// name.
func storeObjects() ([]*unstructured.Unstructured, error) {
	files, err := fs.Glob(corpusFiles, "apidiff/corpus/*.yaml")
	if err != nil {
		return nil, err
	}
	texts := [][]byte{storeCorpus}
	for _, path := range files {
		text, err := corpusFiles.ReadFile(path)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	var list []*unstructured.Unstructured
	for _, text := range texts {
		for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
			data, err := yaml.YAMLToJSONStrict(doc)
			if err != nil {
				return nil, err
			}
			u := &unstructured.Unstructured{}
			if err := u.UnmarshalJSON(data); err != nil {
				return nil, err
			}
			if u.GroupVersionKind().Group == "diff.example" || u.GetKind() == "LocalSubjectAccessReview" {
				// Apidiff's own definitions and namespaces, which storeCorpus has too, and reviews,
				// which are not stored.
				continue
			}
			if u.GetName() == "x" {
				u.SetName(fmt.Sprintf("x-%d", len(list)))
			}
			switch u.GetKind() {
			case "Secret", "ConfigMap", "Sea": // stored encrypted
				u.SetAnnotations(map[string]string{"secret": secretText})
			case "CertificateSigningRequest":
				var request []byte
				if request, err = certificateRequest(); err == nil {
					err = unstructured.SetNestedField(u.Object, base64.StdEncoding.EncodeToString(request), "spec", "request")
				}
			case "PriorityLevelConfiguration":
				if kind, _, _ := unstructured.NestedString(u.Object, "spec", "type"); kind == "Exempt" {
					continue // there is only one, which every server creates
				}
			}
			if err != nil {
				return nil, err
			}
			list = append(list, u)
		}
	}
	return list, nil
}

func (c *apiClient) writeOne(ctx context.Context, namespace string, obj *unstructured.Unstructured) error {
	res, err := c.resource(ctx, obj, namespace)
	if err != nil {
		return err
	}
	if obj.GetKind() == "Event" { // an Event is in the namespace of its object
		for _, field := range []string{"involvedObject", "regarding"} {
			if _, ok := obj.Object[field]; ok {
				if err := unstructured.SetNestedField(obj.Object, namespace, field, "namespace"); err != nil {
					return err
				}
			}
		}
	}
	if _, err := res.Create(ctx, obj, metav1.CreateOptions{FieldManager: "interchange"}); err != nil {
		return err
	}
	if status, ok := obj.Object["status"]; ok {
		subresource := "status"
		if obj.GetKind() == "CertificateSigningRequest" {
			subresource = "approval"
		}
		// Servers also write to the objects of flow control.
		if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			made, err := res.Get(ctx, obj.GetName(), metav1.GetOptions{})
			if err != nil {
				return err
			}
			made.Object["status"] = status
			_, err = res.Update(ctx, made, metav1.UpdateOptions{}, subresource)
			return err
		}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("status: %w", err)
		}
	}
	if len(obj.GetFinalizers()) > 0 { // it stays, being deleted
		return res.Delete(ctx, obj.GetName(), metav1.DeleteOptions{})
	}
	return nil
}

// resource returns the resource of the object. A new definition needs a moment.
func (c *apiClient) resource(ctx context.Context, obj *unstructured.Unstructured, namespace string) (dynamic.ResourceInterface, error) {
	gvk := obj.GroupVersionKind()
	for deadline := time.Now().Add(20 * time.Second); ; {
		groups, err := restmapper.GetAPIGroupResources(c.discovery)
		if err != nil {
			return nil, err
		}
		mapping, err := restmapper.NewDiscoveryRESTMapper(groups).RESTMapping(gvk.GroupKind(), gvk.Version)
		if err == nil && mapping.Scope.Name() == "namespace" {
			return c.Resource(mapping.Resource).Namespace(namespace), nil
		}
		if err == nil {
			return c.Resource(mapping.Resource), nil
		}
		if time.Now().After(deadline) {
			return nil, err
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return nil, err
		}
	}
}

// list reads every object that can be listed, in every version.
func (h *handedStore) list(ctx context.Context, m *mixed) error {
	c, err := m.client()
	if err != nil {
		return err
	}
	h.shown = map[string]*unstructured.Unstructured{}
	return c.each(ctx, func(res schema.GroupVersionResource, obj *unstructured.Unstructured) error {
		h.shown[strings.Join([]string{res.Group, res.Version, res.Resource, obj.GetNamespace(), obj.GetName()}, "/")] = obj
		return nil
	})
}

// each calls fn for every object in every version that the server has.
func (c *apiClient) each(ctx context.Context, fn func(schema.GroupVersionResource, *unstructured.Unstructured) error) error {
	_, lists, err := c.discovery.ServerGroupsAndResources()
	// The corpus has an APIService without a server.
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return err
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return err
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !strings.Contains(strings.Join(r.Verbs, " "), "list") || r.Name == "componentstatuses" || gv.Group == "metrics.k8s.io" {
				continue
			}
			res := gv.WithResource(r.Name)
			found, err := c.Resource(res).List(ctx, metav1.ListOptions{})
			if err != nil {
				return fmt.Errorf("list %s: %w", res, err)
			}
			for i := range found.Items {
				if err := fn(res, &found.Items[i]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// exists reports whether an object can still be read. It returns true if that is uncertain.
func (c *apiClient) exists(ctx context.Context, res schema.GroupVersionResource, obj *unstructured.Unstructured) bool {
	now, err := c.Resource(res).Namespace(obj.GetNamespace()).Get(ctx, obj.GetName(), metav1.GetOptions{})
	return !apierrors.IsNotFound(err) && (err != nil || now.GetUID() == obj.GetUID())
}

// touch writes an annotation to every object.
func (h *handedStore) touch(ctx context.Context, m *mixed) error {
	c, err := m.client()
	if err != nil {
		return err
	}
	patch := []byte(fmt.Sprintf(`{"metadata":{"annotations":{"touched-by":%q}}}`, m.layout.name))
	var errs []error
	err = c.each(ctx, func(res schema.GroupVersionResource, obj *unstructured.Unstructured) error {
		_, err := c.Resource(res).Namespace(obj.GetNamespace()).Patch(ctx, obj.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) && !c.exists(ctx, res, obj) {
			err = nil // deleted since it was listed
		}
		if err != nil && !apierrors.IsMethodNotSupported(err) {
			errs = append(errs, fmt.Errorf("%s %s: %w", res.Resource, obj.GetName(), err))
		}
		return nil
	})
	return errors.Join(err, errors.Join(errs...))
}

// wantEncrypted searches all files of the store for the text.
func (h *handedStore) wantEncrypted() error {
	missing := map[string]bool{"aescbc:v1:one": true, "secretbox:v1:two": true, "aesgcm:v1:three": true}
	err := filepath.WalkDir(filepath.Join(h.dir, "data", "etcd"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(secretText)) {
			return fmt.Errorf("%s holds it in clear", path)
		}
		maps.DeleteFunc(missing, func(mark string, _ bool) bool { return bytes.Contains(data, []byte("k8s:enc:"+mark+":")) })
		return err
	})
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("nothing in the store is marked as encrypted by %q", slices.Sorted(maps.Keys(missing)))
	}
	return err
}
