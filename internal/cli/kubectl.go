package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/plugin"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/knarr-project/knarr/internal/cli/insight"
	"github.com/knarr-project/knarr/internal/cli/refusal"
	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/version"
)

// kubectl runs the real kubectl. Without KUBECONFIG, --kubeconfig or a ~/.kube/config it uses the
// admin kubeconfig of the cluster on this machine.
func kubectl(args []string) error {
	args, dataDir, err := kubectlCluster(args)
	if err != nil {
		return err
	}
	args, at, err := insight.TakeAt(args, time.Now())
	if err != nil {
		return err
	}
	if err := useCluster(dataDir); err != nil {
		return err
	}
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	flags := genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag().WithDiscoveryBurst(300).WithDiscoveryQPS(50).WithWarningPrinter(streams)
	explains := &explainer{here: clusters.Here(), stop: func(message string) {
		fmt.Fprintln(os.Stderr, "knarr:", message)
		os.Exit(1)
	}}
	if len(args) == 0 || !strings.HasPrefix(args[0], "__complete") {
		explains.servers.remark = func(message string) { fmt.Fprintln(os.Stderr, "knarr:", message) }
	}
	var refusals *refusal.Recorder
	flags = flags.WithWrapConfigFn(func(c *rest.Config) *rest.Config {
		explains.server = *flags.APIServer
		if at != "" {
			c = insight.At(c, at)
		}
		c = explains.wrap(c)
		refusals.Wrap(c)
		return c
	})
	os.Args = append([]string{"kubectl"}, args...)
	cmd := kubectlcmd.NewDefaultKubectlCommandWithArgs(kubectlcmd.KubectlOptions{
		PluginHandler: kubectlcmd.NewDefaultPluginHandler(plugin.ValidPluginFilenamePrefixes),
		Arguments:     os.Args,
		ConfigFlags:   flags,
		IOStreams:     streams,
	})
	cmd.SetArgs(args)
	found, _, err := cmd.Find(args)
	if err == nil {
		explains.command = found.Name()
		refusals = refusal.New(found.Name(), args)
	}
	if len(args) > 0 && strings.HasPrefix(args[0], "__complete") {
		explains.command = args[0]
	}
	if at != "" && !strings.HasPrefix(explains.command, "__complete") {
		if err := insight.CheckAt(explains.command, args); err != nil {
			return err
		}
	}
	if refusals != nil {
		cmdutil.BehaviorOnFatal(func(message string, code int) {
			if message != "" {
				fmt.Fprintln(os.Stderr, strings.TrimSuffix(message, "\n"))
			}
			refusals.Explain(context.Background(), os.Stderr, found.Flags(), namespaceOf(flags), message)
			os.Exit(code)
		})
	}
	if err := cmd.Execute(); err != nil {
		cmdutil.CheckErr(err)
	}
	if refusals != nil {
		refusals.Explain(context.Background(), os.Stderr, found.Flags(), namespaceOf(flags), "")
	}
	return nil
}

// namespaceOf returns the namespace of --namespace, or that of the kubeconfig's context.
func namespaceOf(flags *genericclioptions.ConfigFlags) string {
	namespace, _, _ := flags.ToRawKubeConfigLoader().Namespace() // kubectl has reported an error
	return namespace
}

// completeKubectl lets kubectl complete its own arguments against the cluster that they select.
// request is cobra's hidden command.
func completeKubectl(request string, args []string) error {
	rest, _, err := kubectlCluster(args)
	if err != nil {
		return err
	}
	leading := args[:len(args)-len(rest)]
	return kubectl(slices.Concat(leading, []string{request}, rest))
}

// kubectlHelp is only for the list of commands. Execute handles kubectl itself, because kubectl
// parses its own flags.
func kubectlHelp() *cobra.Command {
	return &cobra.Command{
		Use: "kubectl ...", Short: "Run the bundled kubectl on this machine's cluster or another one", DisableFlagParsing: true,
		Long: "Runs kubectl " + version.Kubernetes + " with all of its arguments. It uses the kubeconfig of --kubeconfig, of the variable\n" +
			"KUBECONFIG or ~/.kube/config; without one, that of the cluster on this machine. A leading --data-dir, with a\n" +
			"folder or a name of `knarr ls`, chooses another cluster of this machine.\n\n" +
			"With --at TIME, get and describe show objects as they were. TIME is a duration back from now such as 10m or 2d,\n" +
			"or 2006-01-02T15:04:05Z. The history of objects of the server (--history-size) must reach back to it.\n\n" +
			"Below kubectl's errors about files it shows their place and the nearest right name. KNARR_EXPLAIN=off in the\n" +
			"environment turns that off.",
		Example: "knarr kubectl get pods -A\nknarr kubectl get deploy web -o yaml --at 10m\nknarr kubectl --help",
		RunE:    func(_ *cobra.Command, args []string) error { return kubectl(args) },
	}
}
