package insight

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/insight/why"
)

// notWell is the exit status of `knarr why` if something is wrong.
const notWell = 1

// whyFlags are the flags of `knarr why`.
type whyFlags struct {
	Access
	output   string
	all      bool
	as       string
	groups   []string
	port     int32
	protocol string
}

func (p *Program) why() *cobra.Command {
	w := &whyFlags{}
	cmd := &cobra.Command{
		Use: "why [KIND/NAME | KIND NAME | deny ...]", Short: "Explain what is not well, down to its root cause", Args: cobra.MaximumNArgs(3),
		Long: "Explains why an object is not well: the root cause, its evidence, a remedy, and the chain of causes between. Without\n" +
			"an object it examines everything in the namespace, or in the whole cluster with -A, and shows root causes first.\n" +
			"KIND is any built-in kind, with kubectl's short names. It reads with the rights of the kubeconfig's user, says\n" +
			"what that user may not read, changes nothing, and works with any Kubernetes cluster.\n\n" +
			"`knarr why deny --as USER VERB RESOURCE[/NAME]` explains why RBAC denies a request, and what would allow it.\n" +
			"`knarr why deny pod/A pod/B --port PORT` explains which NetworkPolicies deny a connection. Pods in another\n" +
			"namespace are NAMESPACE/pod/NAME.\n\n" +
			"Exit status: 0 nothing is wrong, 1 there are findings or an error, 2 the command line is wrong.",
		Example: "knarr why pod/web-0 -n shop\nknarr why -A\nknarr why deny --as system:serviceaccount:shop:web list secrets -n shop\n" +
			"knarr why deny pod/web-0 pod/db-0 --port 5432 -n shop",
		RunE: func(cmd *cobra.Command, args []string) error { return w.run(p, cmd, args) },
	}
	w.add(cmd)
	f := cmd.Flags()
	f.BoolVarP(&w.all, "all-namespaces", "A", false, "examine the whole cluster")
	f.StringVarP(&w.output, "output", "o", "", "`FORMAT` of the output: json, instead of text")
	f.StringVar(&w.as, "as", "", "`USER` whose request is denied")
	f.StringSliceVar(&w.groups, "as-group", nil, "`GROUPS` of that user, beside system:authenticated")
	f.Int32Var(&w.port, "port", 0, "`PORT` of the denied connection, at the receiving pod")
	f.StringVar(&w.protocol, "protocol", "TCP", "`PROTOCOL` of the denied connection: TCP, UDP or SCTP")
	config.Enumerate(f.Lookup("output"), "json")
	config.Enumerate(f.Lookup("protocol"), "TCP", "UDP", "SCTP")
	return cmd
}

func (w *whyFlags) run(p *Program, cmd *cobra.Command, args []string) error {
	if w.output != "" && w.output != "json" {
		return outputError(w.output, "json")
	}
	c, stopped, err := p.Connect(cmd, &w.Access)
	if err != nil {
		return err
	}
	question, allowed, err := w.question(args)
	if err != nil {
		return p.Usage(cmd, err)
	}
	reader, err := why.NewReader(c)
	if err != nil {
		return err
	}
	answer, err := why.Explain(cmd.Context(), reader, question, time.Now())
	if text := stopped(); text != "" {
		return errors.New(text)
	}
	if err != nil {
		return fmt.Errorf("why: %w", err)
	}
	switch {
	case w.output == "json":
		err = printJSON(cmd.OutOrStdout(), answer)
	case question.Ask != nil && len(answer.Findings) == 0 && len(answer.Unread) == 0:
		_, err = fmt.Fprintln(cmd.OutOrStdout(), allowed())
	default:
		err = why.Print(cmd.OutOrStdout(), answer)
	}
	if err == nil && len(answer.Findings) > 0 {
		err = p.Ended(notWell)
	}
	return err
}

// question reads the arguments. allowed returns the answer for a request or a connection without a
// finding.
func (w *whyFlags) question(args []string) (q why.Question, allowed func() string, err error) {
	switch {
	case len(args) > 0 && args[0] == "deny" && w.as != "":
		return w.request(args[1:])
	case len(args) > 0 && args[0] == "deny":
		return w.connection(args[1:])
	case w.as != "" || w.port != 0:
		return q, nil, errors.New("--as and --port belong to `knarr why deny`")
	case len(args) == 0 && w.all:
		return q, nil, nil
	case len(args) == 0:
		return why.Question{Namespace: w.Namespace}, nil, nil
	}
	ref, err := parseRef(args, w.Namespace)
	return why.Question{Subject: &ref}, nil, err
}

// parseRef reads KIND/NAME or KIND NAME.
func parseRef(args []string, namespace string) (why.Ref, error) {
	kindName, name, ok := strings.Cut(args[0], "/")
	switch {
	case !ok && len(args) == 2:
		name = args[1]
	case len(args) != 1 || !ok || name == "":
		return why.Ref{}, fmt.Errorf("%q is no object: name one as KIND/NAME, such as pod/web-0", strings.Join(args, " "))
	}
	kind, known := why.ResolveKind(kindName)
	if !known {
		return why.Ref{}, fmt.Errorf("there is no built-in kind %q: use a name of `knarr kubectl api-resources`, such as pod, pvc or svc", kindName)
	}
	if !kind.Namespaced {
		namespace = ""
	}
	return why.Ref{Kind: kind.Kind.Kind, Namespace: namespace, Name: name}, nil
}

// request reads VERB RESOURCE[/NAME] of a denied request.
func (w *whyFlags) request(args []string) (q why.Question, allowed func() string, err error) {
	if len(args) != 2 {
		return q, nil, errors.New("deny --as USER needs VERB RESOURCE[/NAME], such as: list secrets")
	}
	resource, name, _ := strings.Cut(args[1], "/")
	resource, sub, _ := strings.Cut(resource, ":")
	r := why.Request{User: w.as, Groups: append([]string{"system:authenticated"}, w.groups...), Verb: strings.ToLower(args[0]), Resource: resource, Subresource: sub, Name: name, Namespace: w.Namespace}
	if kind, ok := why.ResolveKind(resource); ok {
		r.Group, r.Resource = kind.Kind.Group, kind.Resource
		if !kind.Namespaced {
			r.Namespace = ""
		}
	} else if plural, group, ok := strings.Cut(resource, "."); ok {
		r.Resource, r.Group = plural, group
	} else {
		return q, nil, fmt.Errorf("there is no built-in resource %q: write others as RESOURCE.GROUP", resource)
	}
	if w.all {
		r.Namespace = ""
	}
	if account, ok := strings.CutPrefix(w.as, "system:serviceaccount:"); ok {
		namespace, _, _ := strings.Cut(account, ":")
		r.Groups = append(r.Groups, "system:serviceaccounts", "system:serviceaccounts:"+namespace)
	}
	reason := ""
	q.Ask = func(s *why.Snapshot) (found []why.Finding) {
		found, reason = why.Denied(s, r)
		return found
	}
	return q, func() string { return w.as + " may " + r.String() + ": " + reason + "." }, nil
}

// connection reads the two pods of a denied connection.
func (w *whyFlags) connection(args []string) (q why.Question, allowed func() string, err error) {
	if len(args) != 2 || w.port < 1 || w.port > 65535 {
		return q, nil, errors.New("deny needs --as USER VERB RESOURCE[/NAME], or two pods with --port 1-65535")
	}
	t := why.Traffic{Port: w.port, Protocol: corev1.Protocol(strings.ToUpper(w.protocol))}
	for i, to := range []*why.Ref{&t.From, &t.To} {
		namespace, arg := w.Namespace, args[i]
		if strings.Count(arg, "/") == 2 {
			namespace, arg, _ = strings.Cut(arg, "/")
		}
		if *to, err = parseRef([]string{arg}, namespace); err == nil && to.Kind != "Pod" {
			err = fmt.Errorf("%s is no pod: a connection is between two pods", args[i])
		}
		if err != nil {
			return q, nil, err
		}
	}
	q.Ask = func(s *why.Snapshot) []why.Finding { return why.Blocked(s, t) }
	return q, func() string {
		return fmt.Sprintf("No NetworkPolicy denies %s to reach %s at %s port %d.", t.From, t.To, t.Protocol, t.Port)
	}, nil
}
