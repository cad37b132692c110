package cli

import (
	"os"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/plugin"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"github.com/knarr-project/knarr/internal/config"
)

// kubectl is the real kubectl. Without KUBECONFIG, --kubeconfig or a ~/.kube/config it uses the admin kubeconfig of the
// cluster on this machine.
func kubectl(args []string) error {
	useOwnCluster()
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	flags := genericclioptions.NewConfigFlags(true).WithDeprecatedPasswordFlag().WithDiscoveryBurst(300).WithDiscoveryQPS(50).WithWarningPrinter(streams)
	os.Args = append([]string{"kubectl"}, args...)
	cmd := kubectlcmd.NewDefaultKubectlCommandWithArgs(kubectlcmd.KubectlOptions{
		PluginHandler: kubectlcmd.NewDefaultPluginHandler(plugin.ValidPluginFilenamePrefixes),
		Arguments:     os.Args,
		ConfigFlags:   flags,
		IOStreams:     streams,
	})
	cmd.SetArgs(args)
	if err := cmd.Execute(); err != nil {
		cmdutil.CheckErr(err)
	}
	return nil
}

func useOwnCluster() {
	if os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" {
		return
	}
	if _, err := os.Stat(clientcmd.RecommendedHomeFile); err == nil {
		return
	}
	c := config.Default()
	if _, err := os.Stat(c.AdminKubeconfig()); err == nil {
		os.Setenv(clientcmd.RecommendedConfigPathEnvVar, c.AdminKubeconfig())
	}
}

// kubectlHelp only stands in the list of commands; Execute handles kubectl itself, because its flags are its own.
func kubectlHelp() *cobra.Command {
	return &cobra.Command{
		Use: "kubectl", Short: "The bundled kubectl; finds this machine's cluster by itself", DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error { return kubectl(args) },
	}
}
