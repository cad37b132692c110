package insight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/insight/calm"
	"github.com/knarr-project/knarr/internal/insight/relations"
)

func (p *Program) graph() *cobra.Command {
	var a Access
	var all, evidence bool
	var output, file string
	cmd := &cobra.Command{
		Use: "map [SYSTEM]", Short: "Draw which components depend on which", Args: cobra.MaximumNArgs(1),
		Long: "Shows the components of a namespace, or of the whole cluster with -A, and the relations between them:\n" +
			"declared by Components, derived from objects, and seen by nodes as connections. Differences are marked.\n" +
			"Without a Component, a component is the workloads with one name in their labels. It depends on a Service whose\n" +
			"name stands in its environment, its arguments or its ConfigMaps; Secrets are not read. A SYSTEM is a System, the\n" +
			"components with one label app.kubernetes.io/part-of, or those of a namespace. Circles are named below the map.\n\n" +
			"-o calm writes a document of FINOS CALM 1.1. --import reads one (1.0 or 1.1) and writes the Components and\n" +
			"Systems that it describes as YAML; it needs no cluster. Notes on standard error say what was guessed or left out.",
		Example: "knarr map -A\nknarr map -n shop --evidence\nknarr map -n shop -o svg > shop.svg\n" +
			"knarr map -n shop -o calm > shop.calm.json\nknarr map --import shop.calm.json -n shop > architecture.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(mapFormats, output) {
				return outputError(output, "text, svg, mermaid, json or calm")
			}
			if file != "" {
				if len(args) > 0 || all || evidence || cmd.Flags().Changed("output") {
					return p.Usage(cmd, errors.New("--import reads a file alone: SYSTEM, --all-namespaces, --evidence and --output cannot be used with it"))
				}
				return importCALM(cmd, file, cmp.Or(a.Namespace, "default"))
			}
			namespace := func() string {
				if all {
					return ""
				}
				return a.Namespace
			}
			g, c, err := p.read(cmd, &a, namespace)
			if err != nil {
				return err
			}
			if in := namespace(); in != "" && !slices.ContainsFunc(g.Components, func(c relations.Component) bool { return c.ID.Namespace == in }) {
				if gone := missing(cmd.Context(), c, target{namespace: in}); gone != nil {
					return fmt.Errorf("map: %w", gone)
				}
			}
			if len(args) == 1 {
				whole := g
				g = g.Within(func(c *relations.Component) bool { return c.In(args[0]) })
				if len(g.Components) == 0 {
					return fmt.Errorf("map: no component belongs to the system %q%s", args[0], hint(args[0], "systems of the map", systemsOf(whole)))
				}
			}
			return printGraph(cmd.OutOrStdout(), g, output, evidence)
		},
	}
	a.add(cmd)
	f := cmd.Flags()
	f.BoolVarP(&all, "all-namespaces", "A", false, "the whole cluster")
	f.BoolVar(&evidence, "evidence", false, "show the fields and connections that tell of each relation")
	f.StringVarP(&output, "output", "o", "text", "`FORMAT` of the output: text, svg, mermaid, json or calm")
	config.Enumerate(f.Lookup("output"), mapFormats...)
	f.StringVar(&file, "import", "", "write the declarations that the CALM document in `FILE` describes, - for standard input")
	return cmd
}

// systemsOf returns the names of all systems of components.
func systemsOf(g *relations.Graph) (names []string) {
	for _, c := range g.Components {
		if c.System != "" {
			names = append(names, c.System)
		}
		names = append(names, c.Systems...)
	}
	return names
}

var mapFormats = []string{"text", "svg", "mermaid", "json", "calm"}

// importCALM writes the declarations of a CALM document as YAML.
func importCALM(cmd *cobra.Command, file, namespace string) error {
	from := cmd.InOrStdin()
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("--import: %w", err)
		}
		defer opened.Close()
		from = opened
	}
	imported, err := calm.Import(from, namespace)
	if err != nil {
		return fmt.Errorf("--import: %s: %w", file, err)
	}
	for _, note := range imported.Notes {
		if _, err := fmt.Fprintln(cmd.ErrOrStderr(), "note: "+note); err != nil {
			return err
		}
	}
	return imported.YAML(cmd.OutOrStdout())
}

func printGraph(to io.Writer, g *relations.Graph, format string, evidence bool) error {
	switch format {
	case "svg":
		return g.SVG(to)
	case "mermaid":
		return g.Mermaid(to)
	case "json":
		return printJSON(to, g)
	case "calm":
		d, err := calm.Export(g)
		if err != nil {
			return err
		}
		return printJSON(to, d)
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
func (p *Program) read(cmd *cobra.Command, a *Access, namespace func() string) (*relations.Graph, *rest.Config, error) {
	c, stopped, err := p.Connect(cmd, a)
	if err != nil {
		return nil, nil, err
	}
	g, err := relations.Of(cmd.Context(), c, namespace())
	if text := stopped(); text != "" {
		return nil, nil, errors.New(text)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", cmd.Name(), err)
	}
	return g, c, nil
}

func (p *Program) impact() *cobra.Command {
	var a Access
	var output string
	cmd := &cobra.Command{
		Use: "impact KIND/NAME", Short: "List what suffers when something fails", Args: cobra.ExactArgs(1),
		Long: "Lists the components that suffer from the loss of an object, nearest and hardest hit first. KIND is component,\n" +
			"node, namespace, service, pvc, configmap, secret, or a workload: deployment, statefulset, daemonset, cronjob,\n" +
			"job or pod. Dependencies are those of `knarr map`, over all namespaces: declared, derived and seen ones. One that\n" +
			"is declared as optional counts half.",
		Example: "knarr impact node/worker-1\nknarr impact statefulset/db -n shop",
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return outputError(output, "text or json")
			}
			kind, name, ok := strings.Cut(args[0], "/")
			what := relations.Object{Kind: impactKinds[strings.ToLower(kind)], Name: name}
			if !ok || what.Kind == "" || name == "" {
				return p.Usage(cmd, fmt.Errorf("%q is not KIND/NAME, where KIND is component, node, namespace, service, pvc, configmap, secret, deployment, statefulset, daemonset, cronjob, job or pod", args[0]))
			}
			g, c, err := p.read(cmd, &a, func() string { return "" })
			if err != nil {
				return err
			}
			if what.Kind != "Node" && what.Kind != "Namespace" {
				what.Namespace = a.Namespace
			}
			first, found := g.LossOf(what)
			if !found {
				return noImpact(cmd.Context(), c, what, g)
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

// impactResources are the resources of kinds that `knarr impact` knows. Components are those of the
// map, declared or not.
var impactResources = map[string]schema.GroupVersionResource{
	"Node": corev1.SchemeGroupVersion.WithResource("nodes"), "Service": corev1.SchemeGroupVersion.WithResource("services"),
	"PersistentVolumeClaim": corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), "ConfigMap": corev1.SchemeGroupVersion.WithResource("configmaps"),
	"Secret": corev1.SchemeGroupVersion.WithResource("secrets"), "Pod": corev1.SchemeGroupVersion.WithResource("pods"),
	"Deployment": appsv1.SchemeGroupVersion.WithResource("deployments"), "StatefulSet": appsv1.SchemeGroupVersion.WithResource("statefulsets"),
	"DaemonSet": appsv1.SchemeGroupVersion.WithResource("daemonsets"), "CronJob": batchv1.SchemeGroupVersion.WithResource("cronjobs"),
	"Job": batchv1.SchemeGroupVersion.WithResource("jobs"),
}

// noImpact explains that no component has the object: it does not exist, or no component uses it.
func noImpact(ctx context.Context, c *rest.Config, what relations.Object, g *relations.Graph) error {
	asking := target{GroupVersionResource: impactResources[what.Kind], kind: strings.ToLower(what.Kind), namespace: what.Namespace, name: what.Name}
	switch what.Kind {
	case "Namespace":
		asking = target{namespace: what.Name}
	case "Component":
		asking = target{namespace: what.Namespace}
	}
	if gone := missing(ctx, c, asking); gone != nil {
		return fmt.Errorf("impact: %w", gone)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if what.Kind == "Component" {
		var known []string
		for i := range g.Components {
			if id := g.Components[i].ID; id.Namespace == what.Namespace {
				known = append(known, id.Name)
			}
		}
		gone := absent{fmt.Sprintf("component/%s in namespace %s", what.Name, what.Namespace), hint(what.Name, "components there", known)}
		return fmt.Errorf("impact: %w", &gone)
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
