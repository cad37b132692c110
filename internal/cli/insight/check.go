package insight

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/check"
	"github.com/knarr-project/knarr/internal/config"
)

func (p *Program) check() *cobra.Command {
	var (
		opts       check.Options
		format     string
		fix, write bool
	)
	cmd := &cobra.Command{
		Use: "check FILE|FOLDER|-...", Short: "Find errors in files with Kubernetes objects, without a cluster",
		Long: "Does to each object what the API server does on a create: strict decoding, defaults, validation, schemas and rules\n" +
			"of custom resources, admission policies, Pod Security. CustomResourceDefinitions, policies, namespaces and LimitRanges\n" +
			"among the files count. Then it follows references between the files. The exit status is 0 without errors, 1 with\n" +
			"errors, and 2 for a wrong command line.\n\n" +
			"A reference to an object that is in no file is a warning if the files have other objects of its kind in the\n" +
			"namespace, and an error with --closed.",
		Example: "knarr check -R deploy/\nknarr check app.yaml --crds crds/ --pod-security restricted\nhelm template . | knarr check -\nknarr check app.yaml --fix | patch -p0",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args)+len(opts.Kustomize) == 0 {
				return p.Usage(cmd, fmt.Errorf("name files or folders, or - for standard input"))
			}
			if !slices.Contains(check.Formats, format) {
				return p.Usage(cmd, fmt.Errorf("the output is %q; allowed are %s", format, strings.Join(check.Formats, ", ")))
			}
			if write && !fix {
				return p.Usage(cmd, fmt.Errorf("--write is allowed with --fix only"))
			}
			opts.Files, opts.Stdin = args, cmd.InOrStdin()
			report, err := check.Run(cmd.Context(), opts)
			if err != nil {
				return fmt.Errorf("check: %w", err)
			}
			if fix {
				return showFixes(cmd, report, write)
			}
			if err := report.Write(cmd.OutOrStdout(), check.Format(format), onTerminal(cmd)); err != nil {
				return err
			}
			if format == string(check.Text) {
				fmt.Fprintln(cmd.ErrOrStderr(), report.Summary())
			}
			return p.failed(report)
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&opts.Recursive, "recursive", "R", false, "read the folders below folders")
	f.StringSliceVarP(&opts.Kustomize, "kustomize", "k", nil, "`FOLDER`s with a kustomization; the objects that it makes are checked")
	f.StringSliceVar(&opts.CRDs, "crds", nil, "`FILE`s or folders with definitions, policies and other objects that the files use")
	f.StringVarP(&opts.Namespace, "namespace", "n", "default", "`NAMESPACE` of objects without one")
	f.StringVar(&opts.PodSecurity, "pod-security", "privileged", "Pod Security `LEVEL` of namespaces without labels: privileged, baseline, restricted")
	f.BoolVar(&opts.Closed, "closed", false, "the files are all objects: a reference to another one is an error")
	f.BoolVar(&fix, "fix", false, "print a patch for misspelt names instead of the findings")
	f.BoolVar(&write, "write", false, "with --fix: change the files")
	f.StringVarP(&format, "output", "o", string(check.Text), "`FORMAT`: "+strings.Join(check.Formats, ", "))
	for _, name := range []string{"recursive", "kustomize", "crds", "namespace", "pod-security", "closed", "fix", "write", "output"} {
		config.OnlyOnCommandLine(f.Lookup(name))
	}
	return cmd
}

// failed returns the exit status of a check.
func (p *Program) failed(report *check.Report) error {
	if report.Count(check.Error) > 0 {
		return p.Ended(1)
	}
	return nil
}

// showFixes prints the fixes as a patch, or writes them into the files.
func showFixes(cmd *cobra.Command, report *check.Report, write bool) error {
	for _, fixed := range report.Fixes() {
		if !write {
			fmt.Fprint(cmd.OutOrStdout(), fixed.Diff())
			continue
		}
		if err := fixed.Write(); err != nil {
			return fmt.Errorf("check: %w", err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s: %d fixed\n", fixed.Name, fixed.Changes)
	}
	return nil
}

// onTerminal reports whether the output is a terminal.
func onTerminal(cmd *cobra.Command) bool {
	out, ok := cmd.OutOrStdout().(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS)
	return err == nil
}
