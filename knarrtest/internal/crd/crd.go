// Package crd reads CustomResourceDefinitions from files and installs them.
package crd

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

var resource = schema.GroupVersionResource{Group: apiextensionsv1.GroupName, Version: "v1", Resource: "customresourcedefinitions"}

// Object is a CustomResourceDefinition.
type Object = apiextensionsv1.CustomResourceDefinition

// Read reads the definitions of files, and of a folder's files that end in .yaml, .yml or .json. It
// ignores everything but CustomResourceDefinitions of apiextensions.k8s.io/v1. A missing path is an
// error if strict is set. Of several definitions with the same name, the last one is used.
func Read(paths []string, strict bool) ([]*Object, error) {
	var all []*Object
	for _, path := range paths {
		documents, err := Documents(path)
		if errors.Is(err, os.ErrNotExist) && !strict {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, document := range documents {
			var kind metav1.TypeMeta
			if json.Unmarshal(document, &kind) != nil || kind.Kind != "CustomResourceDefinition" || kind.APIVersion != apiextensionsv1.SchemeGroupVersion.String() {
				continue
			}
			crd := &Object{}
			if err := json.Unmarshal(document, crd); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			all = append(all, crd)
		}
	}
	return Unique(all), nil
}

// Unique keeps the last definition of each name, sorted by name.
func Unique(all []*Object) []*Object {
	byName := map[string]*Object{}
	for _, crd := range all {
		byName[crd.Name] = crd
	}
	out := make([]*Object, 0, len(byName))
	for _, crd := range byName {
		out = append(out, crd)
	}
	slices.SortFunc(out, func(a, b *Object) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Documents returns the YAML and JSON documents of a file, or of a folder's files, as JSON.
func Documents(path string) ([][]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	files := []string{path}
	if info.IsDir() {
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, err
		}
		files = nil
		for _, e := range entries {
			if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) && !e.IsDir() {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
	}
	var out [][]byte
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
		for {
			document, err := reader.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			asJSON, err := yaml.ToJSON(document)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			if asJSON = bytes.TrimSpace(asJSON); len(asJSON) > 0 && !bytes.Equal(asJSON, []byte("null")) {
				out = append(out, asJSON)
			}
		}
	}
	return out, nil
}

// Create creates the definitions, and updates existing ones. It updates crds with the server's
// answers.
func Create(ctx context.Context, config *rest.Config, crds []*Object) error {
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if err := create(ctx, c, crd); err != nil {
			return fmt.Errorf("create CustomResourceDefinition %s: %w", crd.Name, err)
		}
	}
	return nil
}

func create(ctx context.Context, c dynamic.Interface, crd *Object) error {
	want := crd.DeepCopy()
	want.TypeMeta = metav1.TypeMeta{APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition"}
	want.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		have, err := c.Resource(resource).Get(ctx, crd.Name, metav1.GetOptions{})
		var got *unstructured.Unstructured
		switch {
		case apierrors.IsNotFound(err):
			want.ResourceVersion = ""
			got, err = write(want, func(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
				return c.Resource(resource).Create(ctx, u, metav1.CreateOptions{})
			})
		case err == nil:
			want.ResourceVersion = have.GetResourceVersion()
			got, err = write(want, func(u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
				return c.Resource(resource).Update(ctx, u, metav1.UpdateOptions{})
			})
		}
		if err != nil {
			return err
		}
		return runtime.DefaultUnstructuredConverter.FromUnstructured(got.Object, crd)
	})
}

func write(crd *Object, fn func(*unstructured.Unstructured) (*unstructured.Unstructured, error)) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
	if err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(content, "status")
	return fn(&unstructured.Unstructured{Object: content})
}

// Delete deletes the definitions. A missing one is no error.
func Delete(ctx context.Context, config *rest.Config, crds []*Object) error {
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if err := c.Resource(resource).Delete(ctx, crd.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete CustomResourceDefinition %s: %w", crd.Name, err)
		}
	}
	return nil
}

// Wait waits until discovery shows the resources of all served versions; requests for them succeed
// from then on. It checks every interval until ctx ends.
func Wait(ctx context.Context, config *rest.Config, crds []*Object, interval time.Duration) error {
	c, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	for _, crd := range crds {
		for _, version := range crd.Spec.Versions {
			if !version.Served {
				continue
			}
			group := schema.GroupVersion{Group: crd.Spec.Group, Version: version.Name}
			for !serves(c, group, crd.Spec.Names.Plural) {
				select {
				case <-ctx.Done():
					return fmt.Errorf("CustomResourceDefinition %s: %s is not served: %w", crd.Name, group, ctx.Err())
				case <-time.After(interval):
				}
			}
		}
	}
	return nil
}

func serves(c discovery.DiscoveryInterface, group schema.GroupVersion, plural string) bool {
	list, err := c.ServerResourcesForGroupVersion(group.String())
	if err != nil {
		return false
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == plural })
}
