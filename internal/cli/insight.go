package cli

import (
	"errors"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/knarr-project/knarr/internal/cli/insight"
	"github.com/knarr-project/knarr/internal/clusters"
)

// insightCommands returns the commands by which a cluster explains itself.
func insightCommands() []*cobra.Command {
	p := insight.Program{Connect: connect, Usage: usageError, Ended: func(status int) error { return ExitStatus(status) }}
	return p.Commands()
}

// kubeconfig returns the kubeconfig of a file, or finds one as `knarr kubectl` does. Each argument
// may be "".
func kubeconfig(dataDir, file, context string) (clientcmd.ClientConfig, error) {
	if file == "" {
		if err := useCluster(dataDir); err != nil {
			return nil, err
		}
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules() // useCluster has set KUBECONFIG
	rules.ExplicitPath = file
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}), nil
}

// connect finds the cluster as `knarr kubectl` does.
func connect(cmd *cobra.Command, a *insight.Access) (c *rest.Config, stopped func() string, err error) {
	dataDir := ""
	if cmd.Flags().Changed("data-dir") {
		dataDir = a.DataDir
	}
	loader, err := kubeconfig(dataDir, a.Kubeconfig, a.Context)
	if err != nil {
		return nil, nil, err
	}
	if a.Namespace == "" {
		if a.Namespace, _, err = loader.Namespace(); err != nil {
			return nil, nil, err
		}
	}
	explains := &explainer{here: clusters.Here(), command: cmd.Name()}
	if c, err = loader.ClientConfig(); clientcmd.IsEmptyConfig(err) {
		return nil, nil, errors.New(explains.noCluster())
	}
	if err != nil {
		return nil, nil, err
	}
	messages := make(chan string, 1)
	explains.stop = func(message string) {
		select {
		case messages <- message:
		default:
		}
	}
	return explains.wrap(c), func() string {
		select {
		case text := <-messages:
			return text
		default:
			return ""
		}
	}, nil
}
