package refusal

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/check"
)

// timeout bounds the reading of schemas after kubectl's own work.
const timeout = 5 * time.Second

// Explain writes the explanation of the command's refusals. flags are those of the command,
// namespace is that of objects whose files name none, said is the message with which the command
// ends, "" if it succeeds.
func (r *Recorder) Explain(ctx context.Context, to io.Writer, flags *pflag.FlagSet, namespace, said string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.refusals) == 0 && said == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	from, ok := r.sources(flags)
	if !ok {
		return
	}
	from.Namespace, from.Said = namespace, said
	from.Schema = func(gvk schema.GroupVersionKind) *apiextensionsv1.JSONSchemaProps {
		s, err := ClusterSchema(ctx, r.config, gvk)
		if err != nil {
			return nil // the explanation has no suggestions then
		}
		return s
	}
	report, err := check.Explain(ctx, from, r.refusals)
	if err != nil || len(report.Findings) == 0 {
		return // kubectl has said what is wrong
	}
	var text bytes.Buffer
	if err := report.Write(&text, check.Text, true); err != nil {
		return
	}
	for line := range strings.Lines(text.String()) {
		if !strings.HasPrefix(line, " ") {
			line = "knarr: " + line
		}
		fmt.Fprint(to, line)
	}
	if files := report.Fixes(); len(files) > 0 {
		names := make([]string, len(files))
		for i := range files {
			names[i] = files[i].Name
		}
		fmt.Fprintf(to, "knarr: `knarr check --fix %s` prints the patch\n", strings.Join(names, " "))
	}
}

// sources returns the files of a command; false if it names none.
func (r *Recorder) sources(flags *pflag.FlagSet) (from check.Sources, ok bool) {
	names, _ := flags.GetStringSlice("filename")
	from.Recursive, _ = flags.GetBool("recursive")
	for _, name := range names {
		if strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://") {
			ok = true // the sent objects are explained, without a place
			continue
		}
		if name == "-" {
			if r.stdin == nil {
				continue
			}
			from.Stdin = bytes.NewReader(r.stdin.bytes())
		}
		from.Files = append(from.Files, name)
	}
	if folder, _ := flags.GetString("kustomize"); folder != "" {
		from.Kustomize = append(from.Kustomize, folder)
	}
	if text, _ := flags.GetString("patch"); text != "" {
		from.Patch, from.PatchName, from.Files = []byte(text), "<patch>", nil
	} else if name, _ := flags.GetString("patch-file"); name != "" {
		if data, err := os.ReadFile(name); err == nil {
			from.Patch, from.PatchName, from.Files = data, name, nil
		}
	}
	return from, ok || len(from.Files)+len(from.Kustomize) > 0 || from.Patch != nil
}

// ClusterSchema reads the schema of a custom kind from the API server's OpenAPI documents.
func ClusterSchema(ctx context.Context, c *rest.Config, gvk schema.GroupVersionKind) (*apiextensionsv1.JSONSchemaProps, error) {
	if c == nil {
		return nil, fmt.Errorf("there is no cluster to ask for %s", gvk)
	}
	client, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, err
	}
	base, _, err := rest.DefaultServerUrlFor(c)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base.JoinPath("openapi/v3/apis", gvk.Group, gvk.Version).String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("read the schemas of %s: %s", gvk.GroupVersion(), response.Status)
	}
	var document struct {
		Components struct {
			Schemas map[string]json.RawMessage `json:"schemas"`
		} `json:"components"`
	}
	const maxDocument = 64 << 20
	if err := json.NewDecoder(io.LimitReader(response.Body, maxDocument)).Decode(&document); err != nil {
		return nil, fmt.Errorf("read the schemas of %s: %w", gvk.GroupVersion(), err)
	}
	for _, raw := range document.Components.Schemas {
		var of struct {
			Kinds []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
		}
		if json.Unmarshal(raw, &of) != nil || len(of.Kinds) != 1 || of.Kinds[0] != gvk {
			continue
		}
		props := &apiextensionsv1.JSONSchemaProps{}
		if err := json.Unmarshal(raw, props); err != nil {
			return nil, fmt.Errorf("read the schema of %s: %w", gvk, err)
		}
		return props, nil
	}
	return nil, fmt.Errorf("the cluster has no kind %q in %s", gvk.Kind, gvk.GroupVersion())
}
