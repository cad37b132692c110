package cli

import (
	"errors"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/knarr-project/knarr/internal/clusters"
)

// accessFlags are the flags of commands that read a cluster's objects as its user does.
type accessFlags struct {
	dataDir, kubeconfig, context, namespace string
}

func (a *accessFlags) add(cmd *cobra.Command) {
	addDataDir(cmd, &a.dataDir)
	f := cmd.Flags()
	f.StringVar(&a.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of the cluster (default: that of `knarr kubectl`)")
	f.StringVar(&a.context, "context", "", "`NAME` of the kubeconfig's context (default: its current one)")
	f.StringVarP(&a.namespace, "namespace", "n", "", "`NAMESPACE` of the object (default: that of the context)")
}

// connect returns the cluster's configuration. stopped returns the explanation of a failed
// connection that has to do with knarr.
func (a *accessFlags) connect(cmd *cobra.Command, command string) (c *rest.Config, stopped func() string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if a.kubeconfig != "" {
		rules.ExplicitPath = a.kubeconfig
	} else {
		dataDir := ""
		if cmd.Flags().Changed("data-dir") {
			dataDir = a.dataDir
		}
		if err := useCluster(dataDir); err != nil {
			return nil, nil, err
		}
		rules = clientcmd.NewDefaultClientConfigLoadingRules()
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: a.context})
	if a.namespace == "" {
		if a.namespace, _, err = loader.Namespace(); err != nil {
			return nil, nil, err
		}
	}
	explains := &explainer{here: clusters.Here(), command: command}
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
