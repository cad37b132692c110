package insight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/insight/ask"
	"github.com/knarr-project/knarr/internal/insight/timeline"
)

const (
	// pageSize is the number of changes that are asked for at a time.
	pageSize = 500
	// maxShown bounds --limit.
	maxShown = 10000
)

// pastFlags are the flags of the commands that read the history of objects.
type pastFlags struct {
	Access
	since, until, output string
	all, only            bool
	limit                int
}

func (p *Program) timeline() *cobra.Command {
	o := &pastFlags{}
	cmd := &cobra.Command{
		Use: "timeline [KIND | KIND/NAME]", Short: "Show what changed, when, by whom, and which fields",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		Long: "Shows the changes of objects in the order of time: who made each, and which fields differ. Events are among them.\n" +
			"Without an argument it shows all objects of the namespace, or of the cluster with -A. With an object it shows\n" +
			"that object, what it owns, and events about these.\n\n" +
			"Changes come from the history of objects of the server (--history-size), which also has objects that no longer\n" +
			"exist. Only objects that the user may get are shown. Heartbeats, generations and managedFields are left out.\n" +
			"Values of Secrets are not recorded.",
		Example: "knarr timeline -n shop\nknarr timeline deploy/web -n shop --since 2d\nknarr timeline configmaps -A -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			var answer timeline.Answer
			return o.run(p, cmd, args, func(ctx context.Context, ask asker) error {
				return o.pages(ctx, ask, &answer)
			}, func(style timeline.Style) error { return answer.Print(cmd.OutOrStdout(), style) }, &answer, func() bool { return len(answer.Items)+answer.Hidden == 0 })
		},
	}
	o.addPast(cmd, "1h")
	cmd.Flags().StringVar(&o.until, "until", "", "show changes up to this `TIME` (default: now)")
	cmd.Flags().IntVar(&o.limit, "limit", 200, "show at most this `NUMBER` of changes, the newest ones")
	return cmd
}

func (p *Program) diff() *cobra.Command {
	o := &pastFlags{}
	cmd := &cobra.Command{
		Use: "diff [KIND | KIND/NAME]", Short: "Show how objects differ from their earlier states",
		Args: cobra.MaximumNArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		Long: "Shows which objects were created, changed and removed since a time, with the difference of their YAML. What\n" +
			"happened between does not count: an object that is as it was is not shown. With an object it shows that object\n" +
			"and what it owns.\n\n" +
			"It reads the history of objects of the server (--history-size), and shows objects that the user may get. Events\n" +
			"and heartbeats are left out. Values of Secrets are not recorded.",
		Example: "knarr diff --since 10m -n shop\nknarr diff deploy/web -n shop --since 2026-01-31T09:00:00Z\nknarr diff -A --since 2d --until 1d -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			var answer timeline.NetAnswer
			return o.run(p, cmd, args, func(ctx context.Context, ask asker) error {
				return ask(ctx, "diff", url.Values{}, &answer)
			}, func(style timeline.Style) error { return answer.Print(cmd.OutOrStdout(), style) }, &answer, func() bool { return len(answer.Items)+answer.Hidden == 0 })
		},
	}
	o.addPast(cmd, "10m")
	cmd.Flags().StringVar(&o.until, "until", "", "compare with this `TIME` (default: now)")
	return cmd
}

func (o *pastFlags) addPast(cmd *cobra.Command, since string) {
	o.add(cmd)
	f := cmd.Flags()
	f.StringVar(&o.since, "since", since, "begin at this `TIME`: a duration back from now such as 2d, or 2006-01-02T15:04:05Z")
	f.BoolVarP(&o.all, "all-namespaces", "A", false, "show all namespaces, and objects without a namespace")
	f.BoolVar(&o.only, "only", false, "with an object: show it without what it owns")
	f.StringVarP(&o.output, "output", "o", "", "`FORMAT` of the output: json, instead of text")
	config.Enumerate(f.Lookup("output"), "json")
}

// asker asks the server a question with the flags' parameters and others.
type asker func(ctx context.Context, question string, query url.Values, answer any) error

// run connects, asks, and writes the answer. An empty answer about a thing that neither the cluster
// nor the history has is an error.
func (o *pastFlags) run(p *Program, cmd *cobra.Command, args []string, ask func(context.Context, asker) error, text func(timeline.Style) error, answer any, empty func() bool) error {
	if o.output != "" && o.output != "json" {
		return outputError(o.output, "json")
	}
	if cmd.Flags().Lookup("limit") != nil && (o.limit < 1 || o.limit > maxShown) {
		return p.Usage(cmd, fmt.Errorf("--limit: %d is not allowed: a number from 1 to %d is", o.limit, maxShown))
	}
	reach, stopped, err := p.Connect(cmd, &o.Access)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	err = o.ask(ctx, reach, args, ask, empty)
	if text := stopped(); text != "" {
		return errors.New(text)
	}
	if err != nil {
		return err
	}
	if o.output == "json" {
		return printJSON(cmd.OutOrStdout(), answer)
	}
	style := timeline.Style{Namespaces: o.all}
	if f, ok := cmd.OutOrStdout().(*os.File); ok && term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "" {
		style.Colors = true
	}
	return text(style)
}

func (o *pastFlags) ask(ctx context.Context, reach *rest.Config, args []string, question func(context.Context, asker) error, empty func() bool) error {
	c, err := client.Remote(reach)
	if err != nil {
		return err
	}
	server, err := ask.To(reach)
	if err != nil {
		return err
	}
	asking := target{}
	if !o.all {
		asking.namespace = o.Namespace
	}
	subject := url.Values{} // the parameters that choose the objects
	if len(args) == 1 {
		kind, name, _ := strings.Cut(args[0], "/")
		r, err := resourceOf(ctx, c, kind)
		if err != nil {
			return err
		}
		if !r.namespaced {
			asking.namespace = ""
		}
		asking.everywhere = r.namespaced && o.all && name != ""
		asking.GroupVersionResource, asking.kind, asking.name = r.GroupVersionResource, r.kind, name
		subject.Set("group", r.Group)
		subject.Set("resource", r.Resource)
		if name != "" {
			subject.Set("name", name)
		}
	}
	if asking.namespace != "" {
		subject.Set("namespace", asking.namespace)
	}
	common := url.Values{"since": {o.since}}
	if o.until != "" {
		common.Set("until", o.until)
	}
	if asking.name != "" && !o.only && !asking.everywhere {
		common.Set("related", "true")
	}
	with := func(more url.Values) asker {
		return func(ctx context.Context, question string, query url.Values, answer any) error {
			maps.Copy(query, subject)
			maps.Copy(query, more)
			return server.Ask(ctx, question, query, answer)
		}
	}
	err = question(ctx, with(common))
	if tooOld := apierrors.IsResourceExpired(err); err != nil && !tooOld || err == nil && !empty() {
		return err
	}
	if asking.name == "" { // a kind may have no objects, so the namespace must be known
		subject = url.Values{"namespace": {asking.namespace}}
	}
	return cmp.Or(unrecorded(ctx, reach, with(nil), asking), err)
}

// pages asks for changes until there are enough.
func (o *pastFlags) pages(ctx context.Context, ask asker, whole *timeline.Answer) error {
	for next := ""; ; {
		var page timeline.Answer
		query := url.Values{"limit": {strconv.Itoa(min(o.limit-len(whole.Items), pageSize))}}
		if next != "" {
			query.Set("continue", next)
		}
		if err := ask(ctx, "timeline", query, &page); err != nil {
			return err
		}
		if whole.Items == nil {
			whole.Items, whole.Gaps = []timeline.Item{}, []timeline.Gap{}
		}
		whole.Items = append(whole.Items, page.Items...)
		whole.Reaches, whole.Continue = page.Reaches, page.Continue
		for _, g := range page.Gaps {
			if !slices.Contains(whole.Gaps, g) {
				whole.Gaps = append(whole.Gaps, g)
			}
		}
		whole.Hidden += page.Hidden
		if len(page.Missing) > 0 {
			whole.Missing = page.Missing
		}
		if next = page.Continue; next == "" || len(whole.Items) >= o.limit {
			return nil
		}
	}
}

// resource is a resource that the server serves.
type resource struct {
	schema.GroupVersionResource
	kind       string // in lower case
	namespaced bool
}

// resourceOf finds a resource as kubectl does: by name, singular, kind or short name, with the
// group after a dot.
func resourceOf(ctx context.Context, c client.Interface, kind string) (found resource, err error) {
	lists, err := c.Discovery(ctx)
	if len(lists) == 0 && err != nil {
		return found, err
	}
	name, wanted, grouped := strings.Cut(strings.ToLower(kind), ".")
	for _, list := range lists {
		of, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || grouped && of.Group != wanted {
			continue
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			if !strings.Contains(r.Name, "/") && (r.Name == name || r.SingularName == name || strings.ToLower(r.Kind) == name || slices.Contains(r.ShortNames, name)) {
				return resource{of.WithResource(r.Name), strings.ToLower(r.Kind), r.Namespaced}, nil
			}
		}
	}
	return found, fmt.Errorf("the server has no kind %q; `knarr kubectl api-resources` lists all", kind)
}
