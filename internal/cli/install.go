package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/run"
	"github.com/knarr-project/knarr/internal/service"
)

// roles are the commands that can be a service.
var roles = map[string]func(start runner) *cobra.Command{"up": upWith, "server": serverWith, "node": nodeWith}

func installCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "install [FLAGS OF UP, SERVER OR NODE]", Short: "Make knarr a service of this machine, and start it",
		Long: "Writes a unit of systemd, or an init script where OpenRC or SysV init runs, that starts `knarr up` with the flags\n" +
			"given here when the machine boots and after a crash. With --server it is `knarr server`, with --node `knarr node`.\n" +
			"A second installation replaces the first one. The pods keep running when the service stops or restarts.\n" +
			"Secrets such as --token go into " + service.SecretsFile + ", which only root can read.",
		Example: "sudo knarr install\nsudo knarr install --listen 0.0.0.0:6443 --registry-hosts /etc/knarr/hosts\n" +
			"sudo knarr install --node --join https://10.0.0.5:6443 --token-file FILE",
		DisableFlagParsing: true, // the flags of up, server or node follow
		Args:               cobra.ArbitraryArgs,
	}
	// For help only. splitInstall reads them.
	cmd.Flags().Bool("server", false, "run knarr server: a control plane without a node")
	cmd.Flags().Bool("node", false, "run knarr node: a node of the cluster at --join")
	cmd.Flags().Bool("no-start", false, "start it at the next boot instead of now")
	onlyOnCommandLine(cmd, "server", "node", "no-start")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		asked, err := splitInstall(args)
		if err != nil {
			return usageError(cmd, err)
		}
		if asked.help {
			return cmd.Help()
		}
		if err := needRootTo("make a service"); err != nil {
			return err
		}
		s, secrets, err := plan(cmd, asked)
		if err != nil {
			return err
		}
		return install(cmd, s, secrets, !asked.noStart)
	}
	return cmd
}

// installation is the command line of knarr install.
type installation struct {
	role          string
	noStart, help bool
	flags         []string // of the role's command
}

// splitInstall separates the flags of install from those of the command.
func splitInstall(args []string) (installation, error) {
	asked := installation{role: "up"}
	for _, arg := range args {
		switch arg {
		case "--server", "--node":
			role := strings.TrimPrefix(arg, "--")
			if asked.role != "up" && asked.role != role {
				return asked, fmt.Errorf("give --server or --node, not both: knarr up, without them, is a server and a node")
			}
			asked.role = role
		case "--no-start":
			asked.noStart = true
		case "-h", "--help":
			asked.help = true
		case "-d", "--detach":
			return asked, fmt.Errorf("%s has no effect on a service, which is in the background anyway", arg)
		default:
			asked.flags = append(asked.flags, arg)
		}
	}
	return asked, nil
}

// plan checks the flags as the command itself does, and returns the service and its secrets. The
// errors name the command's flags and help.
func plan(cmd *cobra.Command, asked installation) (s service.Service, secrets []byte, err error) {
	root := &cobra.Command{Use: "knarr", SilenceUsage: true, SilenceErrors: true}
	checked := roles[asked.role](func(_ context.Context, p run.Params) error {
		s.DataDir = p.Config.DataDir
		return nil
	})
	root.AddCommand(checked)
	root.SetFlagErrorFunc(explainFlag)
	checkUsage(root)
	root.SetArgs(append([]string{asked.role}, asked.flags...))
	var help bytes.Buffer
	root.SetOut(&help)
	root.SetErr(cmd.ErrOrStderr())
	if err := root.ExecuteContext(cmd.Context()); err != nil {
		if errors.Is(err, errHelped) { // --help-all
			_, _ = help.WriteTo(cmd.OutOrStdout())
		}
		return s, nil, err
	}
	// The file has set flags of the checked command, too. These are only of the command line.
	given := roles[asked.role](nil).Flags()
	if err := given.Parse(asked.flags); err != nil {
		return s, nil, err
	}
	words, hidden, err := serviceFlags(given)
	if err != nil {
		return s, nil, err
	}
	if len(hidden) > 0 {
		if given.Changed("config") {
			return s, nil, fmt.Errorf("install: --%s would be readable in the process list; write it into the file of --config instead, as %q", names(hidden)[0], names(hidden)[0]+": VALUE")
		}
		if secrets, err = yaml.Marshal(hidden); err != nil {
			return s, nil, err
		}
		words = append(words, "--config="+service.SecretsFile)
	}
	if s.Program, err = os.Executable(); err != nil {
		return s, nil, err
	}
	s.Args = append([]string{asked.role}, words...)
	return s, secrets, nil
}

func names(values map[string]any) []string {
	var list []string
	for name := range values {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// serviceFlags returns the given flags as words, and those with a secret by name, as values of a
// configuration file. Paths become absolute, because a service starts in another folder.
func serviceFlags(given *pflag.FlagSet) (words []string, secrets map[string]any, err error) {
	public := map[string]string{}
	for _, word := range config.GivenFlags(given) {
		name, _, _ := strings.Cut(strings.TrimPrefix(word, "--"), "=")
		public[name] = word
	}
	secrets = map[string]any{}
	given.Visit(func(flag *pflag.Flag) {
		list, isList := flag.Value.(pflag.SliceValue)
		word := public[flag.Name]
		switch {
		case word == "" && isList:
			secrets[flag.Name] = list.GetSlice()
		case word == "":
			secrets[flag.Name] = flag.Value.String()
		case isPath(flag) || flag.Value.Type() == "stringArray":
			values := []string{flag.Value.String()}
			if isList {
				values = list.GetSlice()
			}
			for _, value := range values {
				if isPath(flag) {
					value, err = absolute(value, err)
				}
				words = append(words, "--"+flag.Name+"="+value)
			}
		default:
			words = append(words, word)
		}
	})
	return words, secrets, err
}

// isPath reports whether a flag's help calls its value a file or a folder.
func isPath(flag *pflag.Flag) bool {
	what := config.HelpOf(flag).Value
	return what == "FILE" || what == "DIR" || what == "PATH"
}

// absolute completes PATH or NAME=PATH. "" and "-" mean no file and the standard output. The error
// of an earlier path stays.
func absolute(value string, earlier error) (string, error) {
	name, path, named := strings.Cut(value, "=")
	if !named || strings.Contains(name, "/") {
		name, path = "", value
	} else {
		name += "="
	}
	if path == "" || path == "-" {
		return value, earlier
	}
	path, err := filepath.Abs(path)
	return name + path, cmp.Or(earlier, err)
}

func install(cmd *cobra.Command, s service.Service, secrets []byte, start bool) error {
	m, err := service.Detect()
	if err != nil {
		return fmt.Errorf("install: %w", err)
	}
	r, _ := clusters.Load(s.DataDir)
	if start && r != nil && r.Alive() && !m.Active(cmd.Context()) {
		return fmt.Errorf("install: knarr runs already (knarr %s, process %d), not as a service; `knarr stop` ends it and keeps its pods running", r.Role, r.PID)
	}
	began := time.Now()
	change, err := m.Install(cmd.Context(), s, secrets, start)
	if err != nil {
		return fmt.Errorf("install: %w", err)
	}
	out := cmd.OutOrStdout()
	printInstalled(out, m, s, change)
	if !start {
		_, err = fmt.Fprintln(out, "it starts at the next boot")
		return err
	}
	return awaitService(cmd.Context(), out, m, s.DataDir, began)
}

func printInstalled(out io.Writer, m *service.Manager, s service.Service, change service.Change) {
	switch {
	case !change.Written:
		fmt.Fprintf(out, "the service is installed already: %s (%s)\n", m.Path(), m.Name())
	case change.Before != "":
		fmt.Fprintf(out, "replaced the service %s (%s)\n  before  %s\n", m.Path(), m.Name(), change.Before)
	default:
		fmt.Fprintf(out, "installed the service %s (%s)\n", m.Path(), m.Name())
	}
	fmt.Fprintf(out, "  runs    %s\n", s.Command())
}

// awaitService waits until knarr is ready. The service manager goes on after a failed start, so
// that is no error of the installation before the time is over.
func awaitService(ctx context.Context, out io.Writer, m *service.Manager, dataDir string, began time.Time) error {
	const most = 2 * time.Minute
	for time.Since(began) < most {
		if r, err := clusters.Load(dataDir); err == nil && r.Alive() && !r.Ready.IsZero() {
			_, err := fmt.Fprintf(out, "it runs (process %d); `knarr status` shows how it is\n", r.PID)
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return fmt.Errorf("install: the service is installed, but knarr is not ready after %s; %s", most, m.LogHint())
}

func uninstallCommand() *cobra.Command {
	return &cobra.Command{
		Use: "uninstall", Short: "Stop the service and remove it; pods and data stay", Args: cobra.NoArgs,
		Long: "Stops the service of `knarr install` and removes its unit or init script. The data folder stays, and the pods keep\n" +
			"running: `knarr purge` removes them.",
		Example: "sudo knarr uninstall",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := needRootTo("remove a service"); err != nil {
				return err
			}
			m, err := service.Detect()
			if err != nil {
				return fmt.Errorf("uninstall: %w", err)
			}
			dataDir, there, err := m.Uninstall(cmd.Context())
			if err != nil {
				return fmt.Errorf("uninstall: %w", err)
			}
			return printUninstalled(cmd.OutOrStdout(), m.Path(), dataDir, there)
		},
	}
}

func printUninstalled(out io.Writer, path, dataDir string, there bool) error {
	if !there {
		_, err := fmt.Fprintf(out, "no service was installed: there is no %s\n", path)
		return err
	}
	purge := "knarr purge"
	if dataDir != clusters.DefaultDataDir {
		purge += " --data-dir " + shellWord(dataDir)
	}
	_, err := fmt.Fprintf(out, "removed the service %s\nthe data in %s stays, and pods keep running; `%s` removes both\n", path, dataDir, purge)
	return err
}
