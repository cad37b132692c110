package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestHelm takes a chart with hooks through its life, with server-side apply (as Helm 4) and with
// merge patches (as Helm 3).
func TestHelm(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.up()
	c.loadProgram("e2e/sailor:v1", "./sailor")
	h := &helm{c, program(t, "../interop", "helm.sh/helm/v4/cmd/helm"), t.TempDir(), "inn"}
	for _, way := range []string{"true", "false"} {
		t.Run("server-side="+way, func(t *testing.T) {
			h.t = t
			h.life(way)
		})
	}
}

// helm is the program with its own folders, and the name of the release.
type helm struct {
	*cluster
	program, home, release string
}

func (h *helm) life(serverSide string) {
	const chart = "testdata/chart"
	h.run("install", h.release, chart, "--wait", "--timeout=60s", "--server-side="+serverSide)
	h.checkHooks("pre-install of revision 1", "post-install of revision 1")
	h.checkSong("shanty")
	if out := h.run("list", "--output=json"); !strings.Contains(out, `"status":"deployed"`) || !strings.Contains(out, `"chart":"tavern-0.1.0"`) {
		h.t.Errorf("helm list: %s", out)
	}
	h.run("test", h.release, "--timeout=60s")

	h.run("upgrade", h.release, chart, "--set=song=ballad,replicas=3", "--wait", "--timeout=60s", "--server-side="+serverSide)
	h.checkHooks("pre-upgrade of revision 2", "post-upgrade of revision 2")
	h.checkSong("ballad")
	h.checkReplicas(3)

	out, err := h.try("upgrade", h.release, chart, "--reuse-values", "--set=image=e2e/nobody:v1", "--rollback-on-failure", "--wait", "--timeout=4s", "--server-side="+serverSide)
	if err == nil || !strings.Contains(out, "rolled back") {
		h.t.Errorf("an upgrade to an image that is not there: %v\n%s", err, out)
	}
	h.checkSong("ballad")

	h.run("rollback", h.release, "1", "--wait", "--timeout=60s", "--server-side="+serverSide)
	h.checkHooks("pre-rollback of revision 1", "post-rollback of revision 1")
	h.checkSong("shanty")
	h.checkReplicas(2)
	if out := h.run("history", h.release); strings.Count(out, "superseded") < 3 || !strings.Contains(out, "Rollback to 1") {
		h.t.Errorf("helm history:\n%s", out)
	}

	h.run("uninstall", h.release, "--wait", "--timeout=60s")
	h.checkHooks("pre-delete of revision 1")
	// helm waits for the chart's objects. The garbage collector deletes their pods later.
	h.eventually(time.Minute, "the release is gone", func() error {
		if out := h.kubectl("get", "deployments,services,pods,configmaps,secrets,serviceaccounts", "-l", "!hook", "-o", "name"); strings.Contains(out, h.release) {
			return fmt.Errorf("after uninstall there are:\n%s", out)
		}
		return nil
	})
	h.kubectl("delete", "jobs", "--all", "--timeout=60s")
}

func (h *helm) run(args ...string) string {
	h.t.Helper()
	out, err := h.try(args...)
	if err != nil {
		h.t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func (h *helm) try(args ...string) (string, error) {
	cmd := h.tool(h.program, args...)
	for _, folder := range []string{"CACHE", "CONFIG", "DATA"} {
		cmd.Env = append(cmd.Env, fmt.Sprintf("HELM_%s_HOME=%s", folder, filepath.Join(h.home, folder)))
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// checkHooks checks that the Jobs of these hooks ran for this revision, in this order.
func (h *helm) checkHooks(said ...string) {
	h.t.Helper()
	last := ""
	for _, words := range said {
		hook, _, _ := strings.Cut(words, " ")
		job := h.release + "-" + hook
		if out := h.kubectl("logs", "job/"+job); strings.TrimSpace(out) != words {
			h.t.Errorf("the hook %s printed %q, wanted %q", hook, out, words)
		}
		ended := h.kubectl("get", "job", job, "-o", "jsonpath={.status.completionTime}")
		if ended == "" || ended < last {
			h.t.Errorf("the hook %s ended at %q, the one before at %q", hook, ended, last)
		}
		last = ended
	}
}

func (h *helm) checkSong(want string) {
	h.t.Helper()
	out := h.kubectl("exec", "deployment/"+h.release, "--", "/sailor", "env", "SONG")
	if strings.TrimSpace(out) != want {
		h.t.Errorf("the song is %q, wanted %q", out, want)
	}
}

func (h *helm) checkReplicas(want int) {
	h.t.Helper()
	if out := h.kubectl("get", "deployment", h.release, "-o", "jsonpath={.status.readyReplicas}"); out != fmt.Sprint(want) {
		h.t.Errorf("%s replicas are ready, wanted %d", out, want)
	}
}

// program builds a program of a neighbouring module if necessary, and returns its path.
func program(t *testing.T, module, pkg string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("../../.cache/e2e", filepath.Base(pkg)))
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-C", module, "-trimpath", "-ldflags", "-s -w", "-o", path, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return path
}
