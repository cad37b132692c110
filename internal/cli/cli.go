// Package cli is the commands: what users type, and what they are told while it happens. The work itself is elsewhere.
package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"github.com/knarr-project/knarr/internal/cli/image"
	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/zpages"
)

// ExitStatus is an error that has been told already; the process ends with this status.
type ExitStatus int

func (s ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Execute runs the command of args. Called as kubectl (by a link of that name), it is kubectl.
func Execute(ctx context.Context, args []string) error {
	if filepath.Base(args[0]) == "kubectl" {
		return kubectl(args[1:])
	}
	if len(args) > 1 && args[1] == "kubectl" {
		return kubectl(args[2:])
	}
	root := Root()
	root.SetArgs(args[1:])
	return root.ExecuteContext(ctx)
}

// Root makes the tree of commands.
func Root() *cobra.Command {
	root := &cobra.Command{
		Use:           "knarr",
		Short:         "A whole Kubernetes in one binary",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(
		upCommand(), serverCommand(), nodeCommand(),
		kubectlHelp(), tokenCommand(), image.Command(func(dataDir string, given bool) (*clusters.Record, error) { return meant(nil, dataDir, given) }), snapshotCommand(),
		doctorCommand(), versionCommand(), purgeCommand(),
		lsCommand(), statusCommand(), stopCommand(), logsCommand(),
	)
	root.AddCommand(componentCommands()...)
	return root
}

// settings is the part that commands share: the configuration file, flags over it, and the logger.
type settings struct {
	config.Config
	file string
	out  logTarget
	// remembered are settings that the data folder's record has, as flags.
	remembered []string
}

func newSettings() *settings { return &settings{Config: config.Default()} }

func (s *settings) addFlags(cmd *cobra.Command, groups config.Groups) {
	s.Config.AddFlags(cmd.Flags(), groups)
	cmd.Flags().StringVar(&s.file, "config", "", "YAML file with the same settings; flags win over it")
}

// complete reads the file, then lets the flags that were given win over it.
func (s *settings) complete(cmd *cobra.Command) (*slog.Logger, error) {
	if s.file != "" {
		again := config.Given(cmd.Flags())
		if err := s.Load(s.file); err != nil {
			return nil, err
		}
		if err := again(); err != nil {
			return nil, err
		}
	}
	choose(cmd, &s.Config, s.file != "" && s.DataDir != config.Default().DataDir)
	s.remembered = recall(cmd, &s.Config)
	if err := s.Complete(); err != nil {
		return nil, err
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.LogLevel)); err != nil {
		return nil, err
	}
	zpages.LogLevel.Set(level)
	log := slog.New(slog.NewTextHandler(&s.out, &slog.HandlerOptions{Level: &zpages.LogLevel}))
	slog.SetDefault(log)
	klog.SetSlogLogger(log) // what Kubernetes' libraries have to say, under the same level
	return log, nil
}

func needRoot() error {
	return needRootTo("run a node: containers, mounts and network namespaces are made")
}

// needRootTo says what root is needed for, to other users.
func needRootTo(what string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("it needs root to %s (try sudo)", what)
	}
	return nil
}
