package image

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// completionTimeout bounds the look-up of names while a user waits for the Tab key.
const completionTimeout = 2 * time.Second

// completeNames completes the first most arguments with names of images of this machine; all of
// them for -1.
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
