package insight

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/insight/causes"
	"github.com/knarr-project/knarr/internal/insight/trace"
)

// maxTracedPods bounds the pods whose steps are asked for.
const maxTracedPods = 50

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
			"Causes come from the causal log of each server (--causal-log-size). Steps of nodes come from events and\n" +
			"conditions of pods. Causes of controllers and nodes that are not knarr's are guessed, and marked ←?.",
		Example: "knarr trace deploy/web -n shop\nknarr trace --change 4711\nknarr trace deploy/web -o chrome > web.json",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains([]string{"", "json", "chrome"}, o.output) {
				return outputError(o.output, "json or chrome")
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
			}
			return tree.Print(cmd.OutOrStdout())
		},
	}
	o.add(cmd)
	f := cmd.Flags()
	f.StringVar(&o.change, "change", "", "the change's `ID`: a revision (a resourceVersion), or the audit ID of a request")
	f.StringVarP(&o.output, "output", "o", "", "`FORMAT` of the output: json, or chrome for trace viewers, instead of text")
	config.Enumerate(f.Lookup("output"), "json", "chrome")
	return cmd
}

// trace asks the servers and builds the tree.
func (o *traceOptions) trace(ctx context.Context, reach *rest.Config, args []string) (*trace.Tree, error) {
	c, err := client.Remote(reach)
	if err != nil {
		return nil, err
	}
	logs, err := causalLogs(ctx, c, reach)
	if err != nil {
		return nil, err
	}
	var roots []int64
	if o.change != "" {
		roots, err = rootsOfChange(ctx, logs, o.change)
	} else {
		roots, err = o.rootsOfObject(ctx, c, logs, args[0])
	}
	if err != nil {
		return nil, err
	}
	answer, err := logs.Forward(ctx, roots)
	if err != nil {
		return nil, err
	}
	if len(answer.Records) == 0 && answer.Hidden == 0 {
		return nil, fmt.Errorf("the causal logs have no write with revision %d", roots[0])
	}
	tree := trace.Build(answer, podFacts(ctx, c, answer))
	for server, why := range logs.Missing() {
		if tree.Missing == nil {
			tree.Missing = map[string]string{}
		}
		tree.Missing[server] = why.Error()
	}
	return tree, nil
}

// causalLogs returns access to the logs of all servers in the endpoints of Service
// default/kubernetes. Each has its own writes.
func causalLogs(ctx context.Context, c client.Interface, reach *rest.Config) (*trace.Servers, error) {
	httpClient, err := rest.HTTPClientFor(reach)
	if err != nil {
		return nil, err
	}
	logs := &trace.Servers{HTTP: httpClient, URLs: []string{strings.TrimSuffix(reach.Host, "/")}}
	//lint:ignore SA1019 as upstream, API servers announce themselves in Endpoints
	ends, err := client.Get[*corev1.Endpoints](ctx, c, metav1.NamespaceDefault, "kubernetes")
	if err != nil {
		return logs, nil // a user who may not read them sees the writes of one server
	}
	var all []string
	for _, subset := range ends.Subsets {
		for _, address := range subset.Addresses {
			for _, port := range subset.Ports {
				all = append(all, "https://"+net.JoinHostPort(address.IP, strconv.Itoa(int(port.Port))))
			}
		}
	}
	if len(all) > 1 {
		logs.URLs = slices.Compact(append(logs.URLs, all...))
	}
	return logs, nil
}

// rootsOfChange returns the revisions of a change: it is a revision, or the ID of a request.
func rootsOfChange(ctx context.Context, logs *trace.Servers, change string) ([]int64, error) {
	if revision, err := strconv.ParseInt(change, 10, 64); err == nil {
		if revision < 1 {
			return nil, fmt.Errorf("--change: %s is no revision: a number above 0", change)
		}
		return []int64{revision}, nil
	}
	answer, err := logs.OfRequest(ctx, change)
	if err != nil {
		return nil, err
	}
	var roots []int64
	for _, r := range answer.Records {
		roots = append(roots, r.Revision)
	}
	if len(roots) == 0 {
		return nil, fmt.Errorf("--change: the causal logs have no write of a request %q", change)
	}
	return roots, nil
}

// rootsOfObject returns the last change of an object by a user. If there is none, it follows the
// causes of the object's creation, or of its newest write, back to a user's change.
func (o *traceOptions) rootsOfObject(ctx context.Context, c client.Interface, logs *trace.Servers, arg string) ([]int64, error) {
	object, err := o.object(ctx, c, arg)
	if err != nil {
		return nil, err
	}
	answer, err := logs.OfObject(ctx, object)
	if err != nil {
		return nil, err
	}
	if len(answer.Records) == 0 {
		return nil, fmt.Errorf("the causal logs have no write of %s: it has not changed while they were kept, or it does not exist", arg)
	}
	from := answer.Records[0].Revision
	for _, r := range answer.Records {
		if r.Begins() {
			return []int64{r.Revision}, nil
		}
	}
	for _, r := range answer.Records {
		if r.Effect == causes.Created {
			from = r.Revision
			break
		}
	}
	back, err := logs.Backward(ctx, []int64{from})
	if err != nil {
		return nil, err
	}
	for _, r := range slices.Backward(back.Records) {
		if r.Begins() {
			return []int64{r.Revision}, nil
		}
	}
	if len(back.Records) > 0 {
		from = back.Records[0].Revision
	}
	return []int64{from}, nil
}

// object finds the resource of KIND/NAME as kubectl does: by name, singular, kind or short name,
// with the group after a dot.
func (o *traceOptions) object(ctx context.Context, c client.Interface, arg string) (causes.Object, error) {
	kind, name, ok := strings.Cut(arg, "/")
	if !ok || kind == "" || name == "" {
		return causes.Object{}, fmt.Errorf("%q is no object: KIND/NAME is needed, such as deploy/web", arg)
	}
	lists, err := c.Discovery(ctx)
	if len(lists) == 0 && err != nil {
		return causes.Object{}, err
	}
	kind, group, grouped := strings.Cut(strings.ToLower(kind), ".")
	for _, list := range lists {
		of, _, _ := strings.Cut(list.GroupVersion, "/")
		if !strings.Contains(list.GroupVersion, "/") {
			of = ""
		}
		if grouped && of != group {
			continue
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || r.Name != kind && r.SingularName != kind && strings.ToLower(r.Kind) != kind && !slices.Contains(r.ShortNames, kind) {
				continue
			}
			found := causes.Object{Group: of, Resource: r.Name, Name: name}
			if r.Namespaced {
				found.Namespace = o.Namespace
			}
			return found, nil
		}
	}
	return causes.Object{}, fmt.Errorf("the server has no kind %q; `knarr kubectl api-resources` lists all", kind)
}

// podFacts reads the pods of a story and their events. What cannot be read is left out.
func podFacts(ctx context.Context, c client.Interface, answer causes.Answer) *trace.Facts {
	facts := &trace.Facts{Pods: map[string]*corev1.Pod{}, Events: map[string][]corev1.Event{}}
	for uid, object := range trace.PodsOf(answer) {
		if len(facts.Pods) >= maxTracedPods {
			break
		}
		if pod, err := client.Get[*corev1.Pod](ctx, c, object.Namespace, object.Name); err == nil && string(pod.UID) == uid {
			facts.Pods[uid] = pod
		}
		list, err := c.List(ctx, corev1.SchemeGroupVersion.WithResource("events"), object.Namespace, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("involvedObject.uid", uid).String(), Limit: 100,
		})
		if events, ok := list.(*corev1.EventList); ok && err == nil {
			facts.Events[uid] = events.Items
		}
	}
	return facts
}
