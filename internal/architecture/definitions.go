package architecture

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"path"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

//go:embed crds/*.yaml
var crds embed.FS

// Definition is a CustomResourceDefinition of knarr's. Reading it costs more than comparing its
// content.
type Definition struct {
	Name string
	// Content is a hash that differs between versions of the definition.
	Content string
	text    []byte
}

// NewDefinition returns the definition with this name and YAML.
func NewDefinition(name string, text []byte) Definition {
	sum := sha256.Sum256(text)
	return Definition{name, hex.EncodeToString(sum[:8]), text}
}

// Stored returns the definitions of the kinds, by the names of their files in crds. Each file has
// the plural name of one kind.
func Stored() ([]Definition, error) {
	files, err := crds.ReadDir("crds")
	if err != nil {
		return nil, err
	}
	var all []Definition
	for _, file := range files {
		text, err := crds.ReadFile(path.Join("crds", file.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, NewDefinition(strings.TrimSuffix(file.Name(), ".yaml")+"."+GroupVersion.Group, text))
	}
	return all, nil
}

// Read returns the definition as an object.
func (d Definition) Read() (*apiextensionsv1.CustomResourceDefinition, error) {
	out := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(d.text, out); err != nil {
		return nil, fmt.Errorf("definition %s: %w", d.Name, err)
	}
	if out.Name != d.Name {
		return nil, fmt.Errorf("definition %s has the name %s", d.Name, out.Name)
	}
	return out, nil
}

// Definitions returns the definitions of the kinds as objects.
func Definitions() (all []*apiextensionsv1.CustomResourceDefinition, err error) {
	stored, err := Stored()
	if err != nil {
		return nil, err
	}
	for _, d := range stored {
		read, err := d.Read()
		if err != nil {
			return nil, err
		}
		all = append(all, read)
	}
	return all, nil
}

// From converts an object of the API, as a client without types has it. object is a pointer to one
// of the kinds.
func From(u runtime.Unstructured, object any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructured(u.UnstructuredContent(), object)
}
