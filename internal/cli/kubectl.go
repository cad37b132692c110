package cli

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/plugin"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

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
	flags = flags.WithWrapConfigFn(func(c *rest.Config) *rest.Config {
		explains.server = *flags.APIServer
		return explains.wrap(c)
	})
	os.Args = append([]string{"kubectl"}, args...)
	cmd := kubectlcmd.NewDefaultKubectlCommandWithArgs(kubectlcmd.KubectlOptions{
		PluginHandler: kubectlcmd.NewDefaultPluginHandler(plugin.ValidPluginFilenamePrefixes),
		Arguments:     os.Args,
		ConfigFlags:   flags,
		IOStreams:     streams,
	})
	cmd.SetArgs(args)
	if found, _, err := cmd.Find(args); err == nil {
		explains.command = found.Name()
	}
	if len(args) > 0 && strings.HasPrefix(args[0], "__complete") {
		explains.command = args[0]
	}
	if err := cmd.Execute(); err != nil {
		cmdutil.CheckErr(err)
	}
	return nil
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
			"folder or a name of `knarr ls`, chooses another cluster of this machine.",
		Example: "knarr kubectl get pods -A\nknarr kubectl --help",
		RunE:    func(_ *cobra.Command, args []string) error { return kubectl(args) },
	}
}
