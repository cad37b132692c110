package insight

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/check"
	"github.com/knarr-project/knarr/internal/cli/refusal"
	"github.com/knarr-project/knarr/internal/config"
)

func (p *Program) explain() *cobra.Command {
	var (
		access             Access
		crds               []string
		apiVersion, output string
	)
	cmd := &cobra.Command{
		Use: "explain KIND[.FIELD...]", Short: "Explain a kind or a field: type, allowed values, and an example", Args: cobra.ExactArgs(1),
		Long: "Explains a field of a kind: its type, description, allowed values and default, and shows an example that the API\n" +
			"server accepts. Built-in kinds, and those of --crds, need no cluster; for other kinds the cluster is asked. Their\n" +
			"examples are made from the schema. `knarr kubectl explain` is kubectl's own command.",
		Example: "knarr explain deployment.spec.strategy\nknarr explain pod.spec.containers.livenessProbe -o json\nknarr explain boat.spec --crds crds/",
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return p.Usage(cmd, outputError(output, "allowed are text and json"))
			}
			set, err := check.Schemas(cmd.Context(), crds)
			if err != nil {
				return fmt.Errorf("explain: %w", err)
			}
			name, path, _ := strings.Cut(args[0], ".")
			gvk, err := set.Kind(name, apiVersion)
			if errors.Is(err, check.ErrUnknownKind) && len(crds) == 0 {
				if found, clusterErr := p.fromCluster(cmd, &access, set, name, apiVersion); clusterErr == nil {
					gvk, err = found, nil
				}
			}
			if err != nil {
				return fmt.Errorf("explain: %w", err)
			}
			e, err := set.Explain(gvk, path)
			if err != nil {
				return fmt.Errorf("explain: %w", err)
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), e)
			}
			return e.Write(cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&apiVersion, "api-version", "", "group and `VERSION` of the kind, such as autoscaling/v1 (default: the preferred one)")
	f.StringSliceVar(&crds, "crds", nil, "`FILE`s or folders with CustomResourceDefinitions")
	f.StringVarP(&output, "output", "o", "text", "`FORMAT`: text, json")
	access.add(cmd)
	for _, name := range []string{"api-version", "crds", "output"} {
		config.OnlyOnCommandLine(f.Lookup(name))
	}
	return cmd
}

// fromCluster adds a kind of the cluster to the schemas.
func (p *Program) fromCluster(cmd *cobra.Command, access *Access, set *check.SchemaSet, name, apiVersion string) (schema.GroupVersionKind, error) {
	c, _, err := p.Connect(cmd, access)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	gvk, err := kindInCluster(cmd.Context(), c, name, apiVersion)
	if err != nil {
		return gvk, err
	}
	of, err := refusal.ClusterSchema(cmd.Context(), c, gvk)
	if err != nil {
		return gvk, err
	}
	return gvk, set.AddKind(gvk, of, []string{strings.ToLower(name)})
}

// kindInCluster finds a kind by a name of the command line.
func kindInCluster(_ context.Context, c *rest.Config, name, apiVersion string) (schema.GroupVersionKind, error) {
	client, err := discovery.NewDiscoveryClientForConfig(c)
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	lists, err := client.ServerPreferredResources()
	if apiVersion != "" {
		_, lists, err = client.ServerGroupsAndResources()
	}
	if len(lists) == 0 && err != nil {
		return schema.GroupVersionKind{}, err
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || apiVersion != "" && list.GroupVersion != apiVersion {
			continue
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			for _, known := range append([]string{r.Kind, r.Name, r.SingularName}, r.ShortNames...) {
				if strings.EqualFold(known, name) && !strings.Contains(r.Name, "/") {
					return gv.WithKind(r.Kind), nil
				}
			}
		}
	}
	return schema.GroupVersionKind{}, fmt.Errorf("the cluster has no kind %q", name)
}
