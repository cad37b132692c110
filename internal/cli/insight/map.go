package insight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/insight/relations"
)

func (p *Program) graph() *cobra.Command {
	var a Access
	var all, evidence bool
	var output string
	cmd := &cobra.Command{
		Use: "map [SYSTEM]", Short: "Draw which components depend on which", Args: cobra.MaximumNArgs(1),
		Long: "Derives the components of a namespace, or of the whole cluster with -A, and the relations between them.\n" +
			"A component is the workloads with one name in their labels. It depends on a Service whose name stands in its\n" +
			"environment, its arguments or its ConfigMaps; Secrets are not read. A SYSTEM is the components with one label\n" +
			"app.kubernetes.io/part-of, or of one namespace. Circles are named below the map.",
		Example: "knarr map -A\nknarr map -n shop --evidence\nknarr map -n shop -o svg > shop.svg",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{"text", "svg", "mermaid", "json"}, output) {
				return outputError(output, "text, svg, mermaid or json")
			}
			namespace := func() string {
				if all {
					return ""
				}
				return a.Namespace
			}
			g, err := p.read(cmd, &a, namespace)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				g = g.Within(func(c *relations.Component) bool { return c.System == args[0] })
				if len(g.Components) == 0 {
					return fmt.Errorf("map: no component belongs to the system %q", args[0])
				}
			}
			return printGraph(cmd.OutOrStdout(), g, output, evidence)
		},
	}
	a.add(cmd)
	f := cmd.Flags()
	f.BoolVarP(&all, "all-namespaces", "A", false, "the whole cluster")
	f.BoolVar(&evidence, "evidence", false, "show the fields that each relation was derived from")
	f.StringVarP(&output, "output", "o", "text", "`FORMAT` of the output: text, svg, mermaid or json")
	config.Enumerate(f.Lookup("output"), "text", "svg", "mermaid", "json")
	return cmd
}

func printGraph(to io.Writer, g *relations.Graph, format string, evidence bool) error {
	switch format {
	case "svg":
		return g.SVG(to)
	case "mermaid":
		return g.Mermaid(to)
	case "json":
		return printJSON(to, g)
	}
	if err := g.Text(to, evidence); err != nil {
		return err
	}
	for _, circle := range g.Cycles() {
		var names []string
		for _, id := range circle {
			names = append(names, id.String())
		}
		if _, err := fmt.Fprintf(to, "a circle: %s depend on each other\n", strings.Join(names, ", ")); err != nil {
			return err
		}
	}
	return nil
}

// read derives the graph of a namespace, which is known once the kubeconfig is loaded.
func (p *Program) read(cmd *cobra.Command, a *Access, namespace func() string) (*relations.Graph, error) {
	c, stopped, err := p.Connect(cmd, a)
	if err != nil {
		return nil, err
	}
	set, err := kubernetes.NewForConfig(c)
	if err != nil {
		return nil, err
	}
	objects, unread, err := relations.Read(cmd.Context(), set, namespace())
	if text := stopped(); text != "" {
		return nil, errors.New(text)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmd.Name(), err)
	}
	g := relations.Derive(objects)
	g.Unread = unread
	return g, nil
}

func (p *Program) impact() *cobra.Command {
	var a Access
	var output string
	cmd := &cobra.Command{
		Use: "impact KIND/NAME", Short: "List what suffers when something fails", Args: cobra.ExactArgs(1),
		Long: "Lists the components that suffer from the loss of an object, nearest and hardest hit first. KIND is component,\n" +
			"node, namespace, service, pvc, configmap, secret, or a workload: deployment, statefulset, daemonset, cronjob,\n" +
			"job or pod. Dependencies are those of `knarr map`, over all namespaces.",
		Example: "knarr impact node/worker-1\nknarr impact statefulset/db -n shop",
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return outputError(output, "text or json")
			}
			kind, name, ok := strings.Cut(args[0], "/")
			what := relations.Object{Kind: impactKinds[strings.ToLower(kind)], Name: name}
			if !ok || what.Kind == "" || name == "" {
				return p.Usage(cmd, fmt.Errorf("%q is not KIND/NAME with a KIND of this command's help", args[0]))
			}
			g, err := p.read(cmd, &a, func() string { return "" })
			if err != nil {
				return err
			}
			if what.Kind != "Node" && what.Kind != "Namespace" {
				what.Namespace = a.Namespace
			}
			first, found := g.LossOf(what)
			if !found {
				return noImpact(cmd.Context(), what, g)
			}
			effects := g.Impact(first)
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), effects)
			}
			return printEffects(cmd.OutOrStdout(), effects, g.Unread)
		},
	}
	a.add(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "text", "`FORMAT` of the output: text or json")
	config.Enumerate(cmd.Flags().Lookup("output"), "text", "json")
	return cmd
}

// impactKinds are the kinds that `knarr impact` knows, with kubectl's short names.
var impactKinds = map[string]string{
	"component": "Component", "node": "Node", "no": "Node", "nodes": "Node", "namespace": "Namespace", "ns": "Namespace", "namespaces": "Namespace",
	"service": "Service", "svc": "Service", "services": "Service", "persistentvolumeclaim": "PersistentVolumeClaim", "pvc": "PersistentVolumeClaim",
	"configmap": "ConfigMap", "cm": "ConfigMap", "secret": "Secret", "deployment": "Deployment", "deploy": "Deployment",
	"statefulset": "StatefulSet", "sts": "StatefulSet", "daemonset": "DaemonSet", "ds": "DaemonSet", "cronjob": "CronJob", "cj": "CronJob", "job": "Job",
	"pod": "Pod", "po": "Pod",
}

// noImpact explains that no component has the object.
func noImpact(ctx context.Context, what relations.Object, g *relations.Graph) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	where := ""
	if what.Namespace != "" {
		where = " in the namespace " + what.Namespace
	}
	text := fmt.Sprintf("impact: no component uses %s%s", what, where)
	if len(g.Unread) > 0 {
		text += "; not read: " + strings.Join(g.Unread, "; ")
	}
	return errors.New(text)
}

func printEffects(to io.Writer, effects []relations.Effect, unread []string) error {
	for _, e := range effects {
		hit := fmt.Sprintf("%s%-40s %3.0f %%  %s", strings.Repeat("  ", e.Distance), e.Component, 100*e.Lost, e.How)
		if e.Distance > 0 {
			hit += ", since it needs " + e.Because.String()
		}
		if _, err := fmt.Fprintln(to, hit); err != nil {
			return err
		}
	}
	for _, u := range unread {
		if _, err := fmt.Fprintf(to, "not read, so more may suffer: %s\n", u); err != nil {
			return err
		}
	}
	return nil
}
