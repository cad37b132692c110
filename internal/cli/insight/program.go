// Package insight implements the commands by which a cluster, and files for it, explain themselves:
// their flags and output. internal/insight and internal/check do the work.
package insight

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/config"
)

// Program is what the commands need of the command line around them.
type Program struct {
	// Connect returns the configuration of the cluster that the flags choose, and completes them.
	// stopped returns the explanation of a failed connection that has to do with knarr, or "".
	Connect func(cmd *cobra.Command, a *Access) (c *rest.Config, stopped func() string, err error)
	// Usage makes an error of the command line, with the status 2, from an error.
	Usage func(cmd *cobra.Command, err error) error
	// Ended makes an error with a status for a command that has said all.
	Ended func(status int) error
}

// Commands returns the commands in the order of help.
func (p *Program) Commands() []*cobra.Command {
	return []*cobra.Command{p.why(), p.trace(), p.timeline(), p.diff(), p.graph(), p.impact(), p.check(), p.explain(), p.schema()}
}

// Access has the flags of commands that read a cluster's objects as its user does.
type Access struct {
	DataDir, Kubeconfig, Context, Namespace string
}

func (a *Access) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.DataDir, "data-dir", config.Default().DataDir, "data `DIR` of the cluster, instead of its name")
	f.StringVar(&a.Kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of the cluster (default: that of `knarr kubectl`)")
	f.StringVar(&a.Context, "context", "", "`NAME` of the kubeconfig's context (default: its current one)")
	f.StringVarP(&a.Namespace, "namespace", "n", "", "`NAMESPACE` of the object (default: that of the context)")
}

func outputError(found, allowed string) error {
	return fmt.Errorf("--output: %q is not usable: %s", found, allowed)
}

func printJSON(to io.Writer, v any) error {
	e := json.NewEncoder(to)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
