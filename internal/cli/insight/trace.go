package insight

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/insight/ask"
	"github.com/knarr-project/knarr/internal/insight/causes"
	"github.com/knarr-project/knarr/internal/insight/otlp"
	"github.com/knarr-project/knarr/internal/insight/trace"
)

// traceOptions are the flags of `knarr trace`.
type traceOptions struct {
	Access
	change, output string
}

func (p *Program) trace() *cobra.Command {
	var o traceOptions
	cmd := &cobra.Command{
		Use: "trace [KIND/NAME]", Short: "Show what came of a change, hop by hop",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		Long: "Shows a change and all writes that came of it as a tree: when each happened, how long after its cause, who made\n" +
			"it, and because of which revisions. Without --change it is the last change of the object by a user; if no user has\n" +
			"changed the object, it is the change that led to it.\n\n" +
			"Causes come from the causal log of each server (--causal-log-size). Steps come from the node agents, or from events\n" +
			"and conditions of pods where a node does not answer. Causes of controllers and nodes that are not knarr's are\n" +
			"guessed, and marked ←?.",
		Example: "knarr trace deploy/web -n shop\nknarr trace --change 4711\nknarr trace deploy/web -o chrome > web.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{"", "json", "chrome", "otlp", "svg"}, o.output) {
				return outputError(o.output, "json, chrome, otlp or svg")
			}
			if (len(args) == 1) == (o.change != "") {
				return p.Usage(cmd, errors.New("give either KIND/NAME or --change"))
			}
			reach, stopped, err := p.Connect(cmd, &o.Access)
			if err != nil {
				return err
			}
			tree, err := o.trace(cmd.Context(), reach, args)
			if text := stopped(); text != "" {
				return errors.New(text)
			}
			switch {
			case err != nil:
				return err
			case o.output == "json":
				return printJSON(cmd.OutOrStdout(), tree)
			case o.output == "chrome":
				return tree.Chrome(cmd.OutOrStdout())
			case o.output == "otlp":
				return otlp.Write(cmd.OutOrStdout(), tree)
			case o.output == "svg":
				return tree.SVG(cmd.OutOrStdout())
			}
			return tree.Print(cmd.OutOrStdout())
		},
	}
	o.add(cmd)
	f := cmd.Flags()
	f.StringVar(&o.change, "change", "", "the change's `ID`: a revision (a resourceVersion), or the audit ID of a request")
	f.StringVarP(&o.output, "output", "o", "", "`FORMAT` instead of text: json, svg, or for trace viewers chrome or otlp")
	config.Enumerate(f.Lookup("output"), "json", "chrome", "otlp", "svg")
	return cmd
}

// trace asks a server for the story.
func (o *traceOptions) trace(ctx context.Context, reach *rest.Config, args []string) (*trace.Tree, error) {
	question := trace.Question{Change: o.change}
	var asking target
	if o.change == "" {
		c, err := client.Remote(reach)
		if err != nil {
			return nil, err
		}
		if asking, err = o.object(ctx, c, args[0]); err != nil {
			return nil, err
		}
		question.Object = causes.Object{Group: asking.Group, Resource: asking.Resource, Namespace: asking.namespace, Name: asking.name}
	}
	server, err := ask.To(reach)
	if err != nil {
		return nil, err
	}
	tree := &trace.Tree{}
	err = server.Ask(ctx, "story", question.Query(), tree)
	if apierrors.IsNotFound(err) && o.change == "" {
		if gone := missing(ctx, reach, asking); gone != nil {
			err = fmt.Errorf("neither the cluster nor the causal logs have %s%s", asking.String(), gone.in(&asking))
		}
	}
	return tree, err
}

// object finds the object of an argument KIND/NAME.
func (o *traceOptions) object(ctx context.Context, c client.Interface, arg string) (target, error) {
	kind, name, ok := strings.Cut(arg, "/")
	if !ok || kind == "" || name == "" {
		return target{}, fmt.Errorf("%q is no object: KIND/NAME is needed, such as deploy/web", arg)
	}
	r, err := resourceOf(ctx, c, kind)
	if err != nil {
		return target{}, err
	}
	found := target{GroupVersionResource: r.GroupVersionResource, kind: r.kind, name: name}
	if r.namespaced {
		found.namespace = o.Namespace
	}
	return found, nil
}
