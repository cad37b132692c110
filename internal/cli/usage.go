package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/knarr-project/knarr/internal/config"
)

// usageStatus is the exit status for an invalid command line or configuration file.
const usageStatus = 2

// UsageError is the error of an invalid command, flag, argument or value. It names the help to
// read.
type UsageError struct {
	command string
	err     error
}

func (e *UsageError) Error() string {
	return fmt.Sprintf("%v\nRead `%s --help`.", e.err, e.command)
}

func (e *UsageError) Unwrap() error { return e.err }

// usageError makes err a usage error of cmd. Nil stays nil.
func usageError(cmd *cobra.Command, err error) error {
	var already *UsageError
	if err == nil || errors.As(err, &already) {
		return err
	}
	return &UsageError{command: cmd.CommandPath(), err: err}
}

// Status returns the exit status for an error of Execute: 0 for none, 2 for a usage error, 1 for
// others.
func Status(err error) int {
	var status ExitStatus
	var usage *UsageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &status):
		return int(status)
	case errors.As(err, &usage):
		return usageStatus
	}
	return 1
}

// errHelped ends a command that has shown help instead of running.
var errHelped = errors.New("help was shown")

// checkUsage makes every command return usage errors for wrong arguments and flags.
func checkUsage(cmd *cobra.Command) {
	fits := cmd.Args
	if cmd.HasSubCommands() {
		fits = cobra.ArbitraryArgs
		cmd.RunE = showOrRefuse
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if shown, err := showAll(cmd, args); shown || err != nil {
			return err
		}
		if fits != nil && fits(cmd, args) != nil {
			return usageError(cmd, wrongArguments(cmd, args))
		}
		return usageError(cmd, requireFlags(cmd))
	}
	for _, sub := range cmd.Commands() {
		checkUsage(sub)
	}
}

// showOrRefuse is the function of commands that only have subcommands.
func showOrRefuse(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return usageError(cmd, unknownCommand(cmd, args[0]))
}

func unknownCommand(cmd *cobra.Command, name string) error {
	var names []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			names = append(append(names, sub.Name()), sub.Aliases...)
		}
	}
	return fmt.Errorf("unknown command %q%s", name, didYouMean(config.Nearest(name, names)))
}

func wrongArguments(cmd *cobra.Command, args []string) error {
	_, expected, takes := strings.Cut(cmd.Use, " ")
	switch {
	case !takes:
		return fmt.Errorf("%s takes no arguments, got %q", nameOf(cmd), args[0])
	case len(args) == 0:
		return fmt.Errorf("arguments are missing: %s %s", cmd.CommandPath(), expected)
	case len(args) == 1 && len(cmd.ValidArgs) > 0:
		return fmt.Errorf("%q is none of %s%s", args[0], strings.Join(cmd.ValidArgs, ", "), didYouMean(config.Nearest(args[0], cmd.ValidArgs)))
	}
	return fmt.Errorf("%d arguments are too many or too few: %s %s", len(args), cmd.CommandPath(), expected)
}

// requireFlags returns an error that names the missing required flags.
func requireFlags(cmd *cobra.Command) error {
	var missing []string
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if flag.Annotations[cobra.BashCompOneRequiredFlag] != nil && !flag.Changed {
			missing = append(missing, "--"+flag.Name)
		}
	})
	if len(missing) > 0 {
		return fmt.Errorf("%s needs %s", nameOf(cmd), strings.Join(missing, ", "))
	}
	return nil
}

// nameOf returns a command's path without the program's name.
func nameOf(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// explainFlag is the FlagErrorFunc of all commands.
func explainFlag(cmd *cobra.Command, err error) error {
	if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
		return usageError(cmd, unknownCommand(cmd, args[0]))
	}
	explained := config.Explain(cmd.Flags(), err)
	var unknown *config.UnknownError
	if errors.As(explained, &unknown) {
		if others := takers(cmd.Root(), unknown.Name); len(others) > 0 {
			explained = fmt.Errorf("%s takes no --%s; it is a setting of %s", nameOf(cmd), unknown.Name, strings.Join(others, ", "))
		}
	}
	return usageError(cmd, explained)
}

// takers returns the commands that have a setting.
func takers(root *cobra.Command, flag string) (paths []string) {
	walk(root, func(cmd *cobra.Command) {
		if own := cmd.Flags().Lookup(flag); !cmd.Hidden && own != nil && config.TopicOf(own) != "" {
			paths = append(paths, nameOf(cmd))
		}
	})
	const most = 4 // as many as fit into a sentence
	if len(paths) > most {
		paths = append(paths[:most], "and others")
	}
	return paths
}

// walk visits a command and all its subcommands.
func walk(cmd *cobra.Command, visit func(cmd *cobra.Command)) {
	visit(cmd)
	for _, sub := range cmd.Commands() {
		walk(sub, visit)
	}
}

func didYouMean(near []string) string {
	if len(near) == 0 {
		return ""
	}
	return "; did you mean " + strings.Join(slices.Compact(near), " or ") + "?"
}
