package cli

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/knarr-project/knarr/internal/adopt"
	"github.com/knarr-project/knarr/internal/run"
)

func adoptCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "adopt", Short: "Take over the control plane of another distribution"}
	cmd.AddCommand(adoptKubeadm())
	return cmd
}

func releaseCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "release", Short: "Give a control plane back to another distribution"}
	cmd.AddCommand(releaseKubeadm())
	return cmd
}

func adoptKubeadm() *cobra.Command {
	s := newSettings()
	o := adopt.Options{From: "/"}
	var dry bool
	cmd := &cobra.Command{
		Use: "kubeadm", Short: "Make a data folder from a stopped control plane that kubeadm made", Args: cobra.NoArgs,
		Long: "Reads kubeadm's manifests, keys and etcd data below --from, and makes a data folder from copies of them. Objects keep\n" +
			"their resourceVersions; kubeconfigs, service account tokens and joined kubelets stay valid. Then `knarr server` with the\n" +
			"written file of settings takes the control plane's place at its address. --dry-run prints what happens to each flag,\n" +
			"and what keeps the adoption from beginning. kubeadm's files stay as they are.",
		Example: "knarr adopt kubeadm --dry-run\nknarr adopt kubeadm\nknarr adopt kubeadm --from /mnt/old --data-dir /srv/one",
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := s.complete(cmd)
			if err != nil {
				return err
			}
			o.DataDir, o.Now = s.DataDir, time.Now()
			plan, err := adopt.Read(o)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			if dry {
				printPlan(out, plan)
				if len(plan.Refusals) > 0 {
					return ExitStatus(1)
				}
				return nil
			}
			result, err := adopt.Adopt(cmd.Context(), plan, o, log)
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "adopted Kubernetes %s: %d keys at revision %d, in %s\n", plan.Version, result.Keys, result.Revision, s.DataDir)
			printNotes(out, plan.Notes)
			fmt.Fprintf(out, "start it in the place of %s: knarr server --config %s\n", plan.Server, result.Settings)
			return nil
		},
	}
	s.takeFlags(cmd, "data-dir", "log-level")
	f := cmd.Flags()
	f.StringVar(&o.From, "from", o.From, "`DIR` that stands for / of the kubeadm machine")
	f.BoolVar(&dry, "dry-run", false, "print the plan only: what happens to each flag, and what is in the way")
	f.StringVar(&o.Manifests, "manifests", "", "`DIR` below --from with the manifests (default: "+adopt.Parked+", else "+adopt.StaticPods+")")
	f.StringSliceVar(&o.Without, "without", nil, "flags that may be lost, as `COMPONENT/FLAG`, such as kube-controller-manager/node-cidr-mask-size")
	f.StringVar(&o.Version, "kubernetes-version", "", "`VERSION` of the cluster (default: that of the API server's image)")
	f.BoolVar(&o.Force, "force-new-cluster", false, "take over one member of an etcd of several, as etcd's flag of this name\nStop the other members for good first.")
	onlyOnCommandLine(cmd, "from", "dry-run", "manifests", "without", "kubernetes-version", "force-new-cluster")
	return cmd
}

func printPlan(out io.Writer, p *adopt.Plan) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "COMPONENT\tFLAG\tVALUE\tVERDICT\tNOTE")
	for _, r := range p.Rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.Component, printable(r.Flag), short(printable(r.Value)), r.Verdict, printable(r.Note))
	}
	_ = t.Flush()
	printNotes(out, p.Notes)
	if len(p.Refusals) == 0 {
		fmt.Fprintln(out, "nothing is in the way")
		return
	}
	fmt.Fprintln(out, "in the way:")
	for _, reason := range p.Refusals {
		fmt.Fprintf(out, "- %s\n", printable(reason))
	}
}

func printNotes(out io.Writer, notes []string) {
	for _, note := range notes {
		fmt.Fprintf(out, "note: %s\n", printable(note))
	}
}

// printable shows control characters, since the text comes from files of another machine.
func printable(text string) string {
	var b strings.Builder
	for _, c := range text {
		if c == '\n' {
			b.WriteString("; ")
		} else if strconv.IsPrint(c) {
			b.WriteRune(c)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(c), "'"))
		}
	}
	return b.String()
}

// short cuts a value that would make the table too wide.
func short(value string) string {
	const most = 56
	if runes := []rune(value); len(runes) > most {
		return string(runes[:most-3]) + "..."
	}
	return value
}

func releaseKubeadm() *cobra.Command {
	s := newSettings()
	var o adopt.Release
	cmd := &cobra.Command{
		Use: "kubeadm", Short: "Write the objects and keys of a stopped server where kubeadm's control plane has its own", Args: cobra.NoArgs,
		Long: "Writes a data folder for upstream's etcd below --to, with all objects and their resourceVersions, and the keys that have\n" +
			"changed. The manifests of kubeadm's static pods must be there, but not where the kubelet runs them. The data and keys\n" +
			"that were there stay beside the new ones. knarr's own keys of the store (/knarr/...) are left out.",
		Example: "knarr release kubeadm --to /",
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := s.complete(cmd)
			if err != nil {
				return err
			}
			if o.To == "" {
				return usageError(cmd, errors.New("--to is missing: the folder that stands for / of the kubeadm machine"))
			}
			o.Now = time.Now()
			r, err := run.ReleaseKubeadm(cmd.Context(), &s.Config, o, log)
			if err != nil {
				return err
			}
			printReleased(cmd.OutOrStdout(), &r)
			return nil
		},
	}
	s.takeFlags(cmd, "data-dir", "log-level")
	cmd.Flags().StringVar(&o.To, "to", "", "`DIR` that stands for / of the kubeadm machine; required")
	cmd.Flags().StringVar(&o.Manifests, "manifests", "", "`DIR` below --to with the manifests (default: "+adopt.Parked+")")
	onlyOnCommandLine(cmd, "to", "manifests")
	return cmd
}

func printReleased(out io.Writer, r *adopt.Released) {
	fmt.Fprintf(out, "etcd's data is in %s, at revision %d\n", r.Etcd, r.Revision)
	if r.Kept != "" {
		fmt.Fprintf(out, "the data that was there is in %s\n", r.Kept)
	}
	for _, key := range r.Removed {
		fmt.Fprintf(out, "left out  %s\n", printable(key))
	}
	for _, file := range r.Written {
		fmt.Fprintf(out, "written   %s\n", file)
	}
	if r.CA {
		fmt.Fprintln(out, "a CA is another one than kubeadm's: renew its certificates with `kubeadm certs renew all` before the start")
	}
	if r.Parked != "" {
		fmt.Fprintf(out, "start kubeadm's control plane: mv %s/* %s/\n", r.Parked, adopt.StaticPods)
	}
}
