package image

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completionTimeout limits the look-up of names, because a user waits for it.
const completionTimeout = 2 * time.Second

// completeNames completes up to most arguments with names of this machine's images; -1 means all
// arguments.
func completeNames(dial dialer, most int) cobra.CompletionFunc {
	return func(command *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if most >= 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		client, err := dial()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer client.Close()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(command.Context()), completionTimeout)
		defer cancel()
		known, err := client.List(ctx, "")
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, image := range known {
			for _, name := range image.Names {
				if strings.HasPrefix(name, begun) && !slices.Contains(args, name) {
					names = append(names, name)
				}
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
