package calm

import (
	"bytes"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/architecture"
)

// YAML writes the declarations as a manifest.
func (i *Imported) YAML(to io.Writer) error {
	var b bytes.Buffer
	write := func(kind string, object any) error {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			return err
		}
		delete(content, "status")
		if m, ok := content["metadata"].(map[string]any); ok {
			delete(m, "creationTimestamp")
		}
		content["apiVersion"], content["kind"] = architecture.GroupVersion.String(), kind
		text, err := yaml.Marshal(content)
		if err != nil {
			return err
		}
		if b.Len() > 0 {
			b.WriteString("---\n")
		}
		b.Write(text)
		return nil
	}
	for _, s := range i.Systems {
		if err := write("System", s); err != nil {
			return fmt.Errorf("System %s: %w", s.Name, err)
		}
	}
	for _, c := range i.Components {
		if err := write("Component", c); err != nil {
			return fmt.Errorf("Component %s/%s: %w", c.Namespace, c.Name, err)
		}
	}
	_, err := to.Write(b.Bytes())
	return err
}
