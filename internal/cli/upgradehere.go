package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/knarr-project/knarr/internal/cli/status"
	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/service"
	"github.com/knarr-project/knarr/internal/snapshots"
	"github.com/knarr-project/knarr/internal/upgrade"
	"github.com/knarr-project/knarr/internal/version"
)

// runHere upgrades this machine alone. It is for a knarr that cannot be told to upgrade itself: it
// is stopped, its program is replaced, and it is started again as it was.
func (u *upgrading) runHere(ctx context.Context) error {
	r, err := clusters.Load(u.cfg.DataDir)
	if err != nil {
		return err
	}
	if u.program, err = upgrade.Inspect(ctx, u.from); err != nil {
		return err
	}
	installed, before, err := u.installed(ctx, r)
	if err != nil {
		return err
	}
	if err := upgrade.CheckServer(before.Build, u.program.Build); err != nil && r.HasServer() {
		return err
	}
	b := u.program.Build
	u.say("program   %s, Kubernetes %s, commit %.12s, %s", b.Knarr, b.Kubernetes, b.Commit, status.Bytes(u.program.Size))
	manager := serviceOf(ctx, r)
	how := "it does not run and is not started"
	switch {
	case !r.Alive():
	case manager != nil:
		how = "the service is restarted"
	case r.Detached:
		how = "process " + fmt.Sprint(r.PID) + " is stopped and started again in the background"
	default:
		return fmt.Errorf("knarr %s (process %d) runs in a terminal: stop it there, run this command again, and start it again", r.Role, r.PID)
	}
	u.say("step 1    %s of this machine, now %s: %s is replaced; %s", r.Role, before.Build.Knarr, installed, how)
	if before.SHA256 == u.program.SHA256 {
		u.say("%s is this program already", installed)
		if !r.Alive() || r.Version == b.Knarr {
			return nil
		}
	}
	if u.dryRun {
		u.say("nothing is changed: this was a dry run")
		return nil
	}
	if before.SHA256 != u.program.SHA256 {
		writer := snapshots.Writer{Knarr: before.Build.Knarr, Commit: before.Build.Commit}
		if err := upgrade.Keep(u.cfg.DataDir, installed, writer); err != nil {
			return err
		}
		if err := upgrade.Replace(u.from, installed); err != nil {
			return err
		}
		u.say("%s is replaced", installed)
	}
	if !r.Alive() {
		u.say("start it again: %s", startCommand(r))
		return nil
	}
	if err := u.restartHere(ctx, r, manager, installed); err != nil {
		u.say("go back   `knarr stop`, `knarr rollback --yes`, and start it again")
		return err
	}
	u.say("the way back: `knarr stop`, then `knarr rollback`")
	return nil
}

// installed returns the file of the process that runs, or of this command.
func (u *upgrading) installed(ctx context.Context, r *clusters.Record) (string, upgrade.Program, error) {
	var p upgrade.Program
	path, err := os.Executable()
	if r.Alive() {
		path, err = os.Readlink(fmt.Sprintf("/proc/%d/exe", r.PID))
		path = strings.TrimSuffix(path, " (deleted)")
	}
	if err != nil {
		return "", p, err
	}
	from, err := filepath.EvalSymlinks(u.from)
	if err != nil {
		return "", p, err
	}
	if same(path, from) {
		return "", p, fmt.Errorf("%s is the installed program itself: knarr does not run, so run this command as the installed knarr, with --from and the new one", from)
	}
	p, err = upgrade.Inspect(ctx, path)
	if err == nil && p.Build.Platform != version.Current().Platform {
		err = fmt.Errorf("%s is for %s", path, p.Build.Platform)
	}
	return path, p, err
}

func same(a, b string) bool {
	first, errA := os.Stat(a)
	second, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(first, second)
}

// serviceOf returns the service manager if the process of a record is its service.
func serviceOf(ctx context.Context, r *clusters.Record) *service.Manager {
	m, err := service.Detect()
	if err != nil || r.Detached || !m.Active(ctx) || m.DataDir() != r.DataDir {
		return nil
	}
	return m
}

// restartHere starts the process again, and waits until it is ready with the new version.
func (u *upgrading) restartHere(ctx context.Context, r *clusters.Record, m *service.Manager, installed string) error {
	began := time.Now()
	if m != nil {
		if err := m.Restart(ctx); err != nil {
			return err
		}
	} else {
		if err := stopCluster(ctx, u.out, r, u.machineTimeout); err != nil {
			return err
		}
		args := append([]string{r.Role, "--data-dir", r.DataDir, "--detach"}, r.Flags...)
		cmd := exec.CommandContext(ctx, installed, args...)
		cmd.Stdout, cmd.Stderr = u.out, u.out
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("start it again: %w", err)
		}
	}
	last := errors.New("it does not run")
	for time.Since(began) < u.machineTimeout {
		now, err := clusters.Load(r.DataDir)
		switch {
		case err != nil:
			last = err
		case !now.Alive() || now.Ready.IsZero() || now.Started.Equal(r.Started):
			last = errors.New("it is not ready")
		case now.Version != u.program.Build.Knarr:
			return fmt.Errorf("process %d runs %s, not %s: does the service run another file than %s?", now.PID, now.Version, u.program.Build.Knarr, installed)
		default:
			u.say("process %d runs %s and is ready, after %.1f s", now.PID, now.Version, time.Since(began).Seconds())
			return nil
		}
		if err := u.pause(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("not ready within %s: %w", u.machineTimeout, last)
}
