// Package cli implements the commands: their flags, help and output. Other packages do the work.
package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/cli/image"
	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/version"
	"github.com/knarr-project/knarr/internal/zpages"
)

// ExitStatus is an error that has been shown already. The process ends with this status.
type ExitStatus int

func (s ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Execute runs the command of args. If it is called as kubectl, through a link of that name, it
// runs kubectl.
func Execute(ctx context.Context, args []string) error {
	if filepath.Base(args[0]) == "kubectl" {
		return kubectl(args[1:])
	}
	if len(args) > 1 && args[1] == "kubectl" {
		return kubectl(args[2:])
	}
	if len(args) > 3 && args[2] == "kubectl" && (args[1] == cobra.ShellCompRequestCmd || args[1] == cobra.ShellCompNoDescRequestCmd) {
		return completeKubectl(args[1], args[3:])
	}
	root := Root()
	root.SetArgs(args[1:])
	if err := root.ExecuteContext(ctx); !errors.Is(err, errHelped) {
		return err
	}
	return nil
}

// Root returns the command knarr with all its commands.
func Root() *cobra.Command {
	cobra.EnableCommandSorting = false // the order below is the order of use
	root := &cobra.Command{
		Use:           "knarr",
		Short:         "A whole Kubernetes in one binary",
		Long:          "knarr is a whole Kubernetes (" + version.Kubernetes + ") in one binary.",
		Example:       "sudo knarr up --detach          # a cluster on this machine\nsudo knarr kubectl get pods -A  # use it",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddGroup(groups...)
	root.AddCommand(inGroup(groupRun, upCommand(), statusCommand(), logsCommand(), stopCommand(), lsCommand(), serverCommand(), nodeCommand(), tokenCommand())...)
	images := image.Command(func(dataDir string, given bool) (*clusters.Record, error) { return targetCluster(nil, dataDir, given) })
	root.AddCommand(inGroup(groupUse, kubectlHelp(), uiCommand(), proxyAPICommand(), images)...)
	root.AddCommand(inGroup(groupAsk, insightCommands()...)...)
	root.AddCommand(inGroup(groupCare, doctorCommand(), installCommand(), uninstallCommand(), memberCommand(), snapshotCommand(), upgradeCommand(), rollbackCommand(), certificatesCommand(), adoptCommand(), releaseCommand(), purgeCommand())...)
	root.AddCommand(inGroup(groupComponent, componentCommands()...)...)
	root.AddCommand(completionCommand(), versionCommand())
	root.SetHelpFunc(showHelp)
	root.SetFlagErrorFunc(explainFlag)
	root.InitDefaultHelpCmd()
	checkUsage(root)
	walk(root, addCompletion)
	return root
}

// settings is shared by all commands: the configuration file, flags over it, and the logger.
type settings struct {
	config.Config
	out logTarget
	// remembered are settings from the data folder's record, as flags.
	remembered []string
}

func newSettings() *settings { return &settings{Config: config.Default()} }

// addFlags adds all settings of the groups. --help shows those named, in their order; --help-all
// shows the rest.
func (s *settings) addFlags(cmd *cobra.Command, groups config.Groups, shown ...string) {
	s.Config.AddFlags(cmd.Flags(), groups)
	for _, name := range []string{"enable-admission-plugins", "disable-admission-plugins"} {
		if flag := cmd.Flags().Lookup(name); flag != nil {
			config.Enumerate(flag, admission.Names...)
		}
	}
	common(cmd, shown...)
}

// takeFlags adds only the settings that the command reads, and --config.
func (s *settings) takeFlags(cmd *cobra.Command, names ...string) {
	s.Config.TakeFlags(cmd.Flags(), append(names, "config")...)
}

// onlyOnCommandLine marks the command's own flags that a file cannot set.
func onlyOnCommandLine(cmd *cobra.Command, names ...string) {
	for _, name := range names {
		config.OnlyOnCommandLine(cmd.Flags().Lookup(name))
	}
}

// complete reads the file; flags take precedence. An invalid setting is a usage error.
func (s *settings) complete(cmd *cobra.Command) (*slog.Logger, error) {
	if s.File != "" {
		if err := s.TakeUpstreamConfig(cmd.Flags()); err != nil {
			return nil, usageError(cmd, err)
		}
	}
	if s.File != "" {
		if err := config.ReadFile(cmd.Flags(), s.File); err != nil {
			return nil, usageError(cmd, err)
		}
	}
	choose(cmd, &s.Config, s.File != "" && s.DataDir != config.Default().DataDir)
	s.remembered = recall(cmd, &s.Config)
	s.NoteGiven(cmd.Flags())
	if err := config.CheckValues(cmd.Flags()); err != nil {
		return nil, usageError(cmd, err)
	}
	if err := s.Complete(); err != nil {
		return nil, usageError(cmd, err)
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.LogLevel)); err != nil {
		return nil, err
	}
	zpages.LogLevel.Set(level)
	log := slog.New(slog.NewTextHandler(&s.out, &slog.HandlerOptions{Level: &zpages.LogLevel}))
	slog.SetDefault(log)
	klog.SetSlogLogger(log) // logs of Kubernetes' libraries, at the same level
	return log, nil
}

func needRoot() error {
	return needRootTo("run a node: containers, mounts and network namespaces are made")
}

// needRootTo returns an error for other users than root, with the reason.
func needRootTo(what string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("it needs root to %s (try sudo)", what)
	}
	return nil
}
