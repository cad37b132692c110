package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/knarr-project/knarr/internal/config"
)

// shells are the supported shells.
var shells = []string{"bash", "zsh", "fish", "powershell"}

func completionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "completion SHELL", Short: "Print a script that completes commands with the Tab key", Args: cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs), ValidArgs: shells,
		Long: "Prints a script for bash, zsh, fish or powershell. The Tab key then completes commands, flags,\n" +
			"values and files, and after `knarr kubectl` the objects of the running cluster.",
		Example: "source <(knarr completion bash)                               # this shell\n" +
			"knarr completion bash > /etc/bash_completion.d/knarr          # every bash\n" +
			"knarr completion zsh > \"${fpath[1]}/_knarr\"                   # every zsh\n" +
			"knarr completion fish > ~/.config/fish/completions/knarr.fish # every fish",
		RunE: func(cmd *cobra.Command, args []string) error {
			root, out := cmd.Root(), cmd.OutOrStdout()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(out, true)
			case "zsh":
				return root.GenZshCompletion(out)
			case "fish":
				return root.GenFishCompletion(out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(out)
			}
			return fmt.Errorf("completion: %q is none of %s", args[0], strings.Join(shells, ", "))
		},
	}
}

// addCompletion adds completion of all flags' values. File names are only completed where an
// argument is a file.
func addCompletion(cmd *cobra.Command) {
	cmd.LocalFlags().VisitAll(func(flag *pflag.Flag) {
		config.Plain(flag) // descriptions are shown unformatted
		completeFlag(cmd, flag)
	})
	if cmd.ValidArgsFunction == nil && len(cmd.ValidArgs) == 0 && !cmd.HasSubCommands() && !takesFiles(cmd) {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
}

func takesFiles(cmd *cobra.Command) bool {
	return slices.ContainsFunc([]string{"FILE", "FOLDER", "SOURCE"}, func(word string) bool { return strings.Contains(cmd.Use, word) })
}

func completeFlag(cmd *cobra.Command, flag *pflag.Flag) {
	if _, done := cmd.GetFlagCompletionFunc(flag.Name); done {
		return
	}
	switch name := config.HelpOf(flag).Value; {
	case flag.Name == "config":
		setAnnotation(flag, cobra.BashCompFilenameExt, "yaml", "yml", "json")
	case name == "FILE": // the shell's default
	case name == "DIR":
		setAnnotation(flag, cobra.BashCompSubdirsInDir)
	default:
		_ = cmd.RegisterFlagCompletionFunc(flag.Name, completeValue(flag))
	}
}

// completeValue completes a value, or the last element of a list.
func completeValue(flag *pflag.Flag) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		allowed := valuesOf(cmd, flag)
		before := ""
		if _, isList := flag.Value.(pflag.SliceValue); isList {
			if comma := strings.LastIndex(begun, ","); comma >= 0 {
				before = begun[:comma+1]
			}
		}
		var matching []string
		for _, value := range allowed {
			if strings.HasPrefix(before+value, begun) && !slices.Contains(strings.Split(before, ","), value) {
				matching = append(matching, before+value)
			}
		}
		return matching, cobra.ShellCompDirectiveNoFileComp
	}
}

// valuesOf returns the enumerated values of a flag.
func valuesOf(cmd *cobra.Command, flag *pflag.Flag) []string {
	if flag.Name == helpAll {
		names := []string{allTopics}
		for _, topic := range topicsOf(cmd) {
			names = append(names, string(topic))
		}
		return names
	}
	return config.ValuesOf(flag)
}
