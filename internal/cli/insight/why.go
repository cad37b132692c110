package insight

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

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
			"KIND is any kind that the cluster serves, with kubectl's short names. It reads with the rights of the kubeconfig's user, says\n" +
			"what that user may not read, changes nothing, and works with any Kubernetes cluster.\n\n" +
			"`knarr why deny VERB RESOURCE[/NAME]` explains why RBAC denies a request, and what would allow it. --as names the\n" +
			"user, instead of the kubeconfig's. VERB /PATH asks about a path, RESOURCE:SUB about a subresource.\n" +
			"`knarr why deny MESSAGE` reads the request from the API server's message \"... is forbidden: User ...\".\n" +
			"`knarr why deny pod/A pod/B --port PORT` explains which NetworkPolicies deny a connection; the receiver may be\n" +
			"svc/B. Objects in another namespace are NAMESPACE/pod/NAME.\n\n" +
			"Exit status: 0 nothing is wrong, 1 there are findings or an error, 2 the command line is wrong.",
		Example: "knarr why pod/web-0 -n shop\nknarr why -A\nknarr why deny --as system:serviceaccount:shop:web list secrets -n shop\n" +
			"knarr why deny pod/web-0 pod/db-0 --port 5432 -n shop",
		RunE: func(cmd *cobra.Command, args []string) error { return w.run(p, cmd, args) },
	}
	w.add(cmd)
	f := cmd.Flags()
	f.BoolVarP(&w.all, "all-namespaces", "A", false, "examine the whole cluster")
	f.StringVarP(&w.output, "output", "o", "", "`FORMAT` of the output: json, instead of text")
	f.StringVar(&w.as, "as", "", "`USER` whose request is denied (default: the kubeconfig's)")
	f.StringSliceVar(&w.groups, "as-group", nil, "`GROUPS` of that user, beside system:authenticated")
	f.Int32Var(&w.port, "port", 0, "`PORT` of the denied connection, at the receiver")
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
	reader, err := why.NewReader(c)
	if err != nil {
		return err
	}
	a := &asking{whyFlags: w, program: p, cmd: cmd, reader: reader}
	question, err := a.question(args)
	var wrong *usageError
	switch {
	case errors.As(err, &wrong):
		return p.Usage(cmd, wrong.err)
	case err != nil:
		return w.failed(p, cmd, c, stopped, err)
	}
	answer, err := why.Explain(cmd.Context(), reader, question, time.Now())
	if text := stopped(); err != nil || text != "" {
		return w.failed(p, cmd, c, stopped, err)
	}
	if a.settled != nil && len(answer.Unread) == 0 {
		if text, status := a.settled(answer); text != "" && w.output == "" {
			if _, err := fmt.Fprintln(cmd.OutOrStdout(), text); err != nil || status == 0 {
				return err
			}
			return p.Ended(status)
		}
	}
	return w.show(p, cmd, answer)
}

// show prints an answer. Its error has the exit status.
func (w *whyFlags) show(p *Program, cmd *cobra.Command, answer *why.Answer) (err error) {
	if w.output == "json" {
		err = printJSON(cmd.OutOrStdout(), answer)
	} else {
		err = why.Print(cmd.OutOrStdout(), answer)
	}
	if err == nil && len(answer.Findings) > 0 {
		err = p.Ended(notWell)
	}
	return err
}

// failed explains a question that could not be asked: a stopped cluster, or a certificate.
func (w *whyFlags) failed(p *Program, cmd *cobra.Command, c *rest.Config, stopped func() string, err error) error {
	if text := stopped(); text != "" {
		return errors.New(text)
	}
	if answer := why.Unconnected(c, err, time.Now()); answer != nil {
		return w.show(p, cmd, answer)
	}
	return fmt.Errorf("why: %w", err)
}

// CausesPage returns the page of all causes. head is the line of generated pages.
func CausesPage(head string) string {
	var b strings.Builder
	n := 0
	for _, area := range why.Areas() {
		n += len(area.Causes)
	}
	b.WriteString("# Causes of knarr why\n\n" + head + "\n")
	fmt.Fprintf(&b, "`knarr why -o json` names each finding's cause. The %d names are stable. A finding has an exact\nremedy where its object allows one; this page has the general one.\n\n", n)
	b.WriteString("`KIND-missing` is the cause of an object that another one needs and that does not exist, such as\n`secret-missing`. Its remedy: create the object, or correct its name.\n")
	for _, area := range why.Areas() {
		fmt.Fprintf(&b, "\n## %s\n\n| cause | meaning | remedy |\n|---|---|---|\n", area.Title)
		for _, c := range area.Causes {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", c.Name, c.Means, c.Remedy)
		}
	}
	return b.String()
}
