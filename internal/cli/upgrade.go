package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/knarr-project/knarr/internal/cli/status"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/upgrade"
)

// upgradeOptions are the flags of knarr upgrade.
type upgradeOptions struct {
	from, maxUnavailable               string
	dryRun, drain, here                bool
	force, deleteEmptyDir              bool
	machineTimeout, drainTimeout, poll time.Duration
}

func upgradeCommand() *cobra.Command {
	s, o := newSettings(), upgradeOptions{poll: time.Second}
	cmd := &cobra.Command{
		Use: "upgrade --from FILE", Short: "Upgrade the cluster's machines to another knarr, one by one", Args: cobra.NoArgs,
		Long: "Checks the cluster and FILE, the new knarr, and prints the plan. Then it upgrades the servers one by one, the leader\n" +
			"last, and after them the nodes. Each machine fetches the program from a server, verifies it, puts it in the place of its own\n" +
			"and starts again. Pods keep running; nodes are drained before, if there are others. It stops at the first failure\n" +
			"and says how to go back. An interrupted command continues when it is run again.",
		Example: "sudo knarr upgrade --from ./knarr --dry-run\nsudo knarr upgrade --from ./knarr\nsudo knarr upgrade --from ./knarr --max-unavailable 10% --drain=false\nsudo ./knarr upgrade --from ./knarr --here",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.from == "" {
				return usageError(cmd, errors.New("upgrade: --from FILE is missing: the knarr to upgrade to"))
			}
			if _, err := upgrade.Unavailable(o.maxUnavailable, 1); err != nil {
				return usageError(cmd, fmt.Errorf("upgrade: --%w", err))
			}
			if _, err := s.complete(cmd); err != nil {
				return err
			}
			u := &upgrading{upgradeOptions: &o, out: cmd.OutOrStdout(), cfg: &s.Config}
			run := u.run
			if o.here {
				run = u.runHere
			}
			if err := run(cmd.Context()); err != nil {
				return fmt.Errorf("upgrade: %w", err)
			}
			return nil
		},
	}
	s.takeFlags(cmd, "data-dir")
	f := cmd.Flags()
	f.StringVar(&o.from, "from", "", "the program `FILE` to upgrade to")
	f.BoolVar(&o.dryRun, "dry-run", false, "check and show the plan, and change nothing")
	f.BoolVar(&o.drain, "drain", true, "drain each node before its turn, if there are others")
	f.StringVar(&o.maxUnavailable, "max-unavailable", "1", "`NUMBER` or percentage of nodes that may be upgraded at the same time")
	f.BoolVar(&o.here, "here", false, "only this machine, for a knarr that cannot be told to upgrade itself")
	f.BoolVar(&o.force, "force", false, "drain also pods without a controller, which are lost")
	f.BoolVar(&o.deleteEmptyDir, "delete-emptydir-data", false, "drain also pods with emptyDir volumes, whose data is lost")
	f.DurationVar(&o.drainTimeout, "drain-timeout", 10*time.Minute, "how long to wait for the drain of one node")
	f.DurationVar(&o.machineTimeout, "machine-timeout", 5*time.Minute, "how long to wait for one machine")
	onlyOnCommandLine(cmd, "from", "dry-run", "drain", "max-unavailable", "here", "force", "delete-emptydir-data", "drain-timeout", "machine-timeout")
	cmd.MarkFlagsMutuallyExclusive("here", "drain")
	cmd.MarkFlagsMutuallyExclusive("here", "max-unavailable")
	return cmd
}

// upgrading is one run of the command.
type upgrading struct {
	*upgradeOptions
	out     io.Writer
	cfg     *config.Config
	program upgrade.Program
	kube    kubernetes.Interface
}

func (u *upgrading) say(format string, args ...any) { fmt.Fprintf(u.out, format+"\n", args...) }

func (u *upgrading) run(ctx context.Context) error {
	if err := serverHere(u.cfg); err != nil {
		return err
	}
	var err error
	if u.program, err = upgrade.Inspect(ctx, u.from); err != nil {
		return err
	}
	access, err := clientcmd.BuildConfigFromFlags("", u.cfg.AdminKubeconfig())
	if err != nil {
		return err
	}
	access.Timeout = 0 // an eviction may wait
	if u.kube, err = kubernetes.NewForConfig(access); err != nil {
		return err
	}
	return u.carryOut(ctx)
}

// carryOut checks, shows the plan and carries it out, once the program is known.
func (u *upgrading) carryOut(ctx context.Context) error {
	st, err := u.status(ctx)
	var answered answeredError
	if errors.As(err, &answered) && answered.code == http.StatusNotFound {
		return fmt.Errorf("the server here cannot upgrade itself: run `%s upgrade --from %s --here` on each machine, servers first, one after the other", u.from, u.from)
	}
	if err != nil {
		return err
	}
	plan, err := u.draw(ctx, st)
	if err != nil {
		return err
	}
	u.print(plan)
	if len(plan.Problems) > 0 {
		return errors.New("nothing is changed: resolve the problems first")
	}
	for _, m := range plan.ByHand {
		if m.Kind == upgrade.Server {
			return errors.New("nothing is changed: upgrade the servers that need it by hand first, one after the other")
		}
	}
	if u.dryRun {
		u.say("nothing is changed: this was a dry run")
		return nil
	}
	return u.execute(ctx, st, plan)
}

// status asks the server here.
func (u *upgrading) status(ctx context.Context) (*upgrade.Status, error) {
	st := &upgrade.Status{}
	err := callServer(ctx, u.cfg, http.MethodGet, upgrade.Path, nil, st)
	return st, err
}

func (u *upgrading) draw(ctx context.Context, st *upgrade.Status) (*upgrade.Plan, error) {
	nodes, err := u.nodes(ctx)
	if err != nil {
		return nil, err
	}
	plan := upgrade.Draw(st, nodes, u.program)
	if o := st.Order; o != nil && o.Program.SHA256 != u.program.SHA256 {
		plan.Remarks = append(plan.Remarks, fmt.Sprintf("the interrupted upgrade to %s is given up for this one", o.Program.Build.Knarr))
	}
	return plan, nil
}

func (u *upgrading) nodes(ctx context.Context) ([]corev1.Node, error) {
	list, err := u.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// print shows the plan.
func (u *upgrading) print(plan *upgrade.Plan) {
	b := u.program.Build
	u.say("program   %s, Kubernetes %s, commit %.12s, %s", b.Knarr, b.Kubernetes, b.Commit, status.Bytes(u.program.Size))
	step := 0
	each := func(all []upgrade.Machine) {
		for _, m := range all {
			if m.Done {
				left := ""
				if m.Cordoned {
					left = ", and is uncordoned"
				}
				u.say("done      %s runs it already%s", m, left)
				continue
			}
			step++
			how := ""
			if m.Leader {
				how = ", which leads the store"
			}
			if m.Node != "" && u.drains(plan) {
				how += ", drained before"
			}
			u.say("step %-4d %s, now %s%s", step, m, m.Version, how)
		}
	}
	each(plan.Servers)
	each(plan.Nodes)
	for _, m := range plan.ByHand {
		u.say("by hand   %s, now %s: %s; there: `knarr upgrade --from FILE --here`", m, m.Version, m.Why)
	}
	for _, m := range plan.LeftOut {
		u.say("left out  %s, now %s: %s", m, m.Version, m.Why)
	}
	if u.drain && !plan.Drainable && len(plan.Nodes) > 0 {
		u.say("remark    nodes are not drained: there is no other one for their pods")
	}
	for _, text := range plan.Remarks {
		u.say("remark    %s", text)
	}
	for _, text := range plan.Problems {
		u.say("problem   %s", text)
	}
}

// drains reports whether nodes are drained.
func (u *upgrading) drains(plan *upgrade.Plan) bool { return u.drain && plan.Drainable }

// stage puts the program where the server here serves it from.
func (u *upgrading) stage() error {
	to := upgrade.Staged(u.cfg.DataDir, u.program)
	if sum, _, err := upgrade.Sum(to); err == nil && sum == u.program.SHA256 {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	if err := upgrade.Replace(u.from, to); err != nil {
		return err
	}
	if sum, _, err := upgrade.Sum(to); err != nil || sum != u.program.SHA256 {
		return fmt.Errorf("%s has changed since it was checked", u.from)
	}
	return nil
}
