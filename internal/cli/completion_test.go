package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/run"
)

// completed returns the words that the Tab key offers, and the directive to the shell.
func completed(t *testing.T, args ...string) (words []string, directive string) {
	t.Helper()
	out, err := typed(t, append([]string{cobra.ShellCompNoDescRequestCmd}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return offered(out)
}

func offered(out string) (words []string, directive string) {
	for line := range strings.Lines(out) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(line, ":"):
			directive = line
		case !strings.HasPrefix(line, "Completion ended"):
			words = append(words, line)
		}
	}
	return words, directive
}

func TestCompletion(t *testing.T) {
	const noFiles, files, folders, extensions = ":4", ":0", ":16", ":8"
	for name, tc := range map[string]struct {
		args      []string
		want      string // a part of the words
		directive string
	}{
		"a command":                 {[]string{"sna"}, "snapshot", noFiles},
		"a subcommand":              {[]string{"image", ""}, "build load ls push rm registry", noFiles},
		"a flag":                    {[]string{"up", "--data"}, "--data-dir", noFiles},
		"a value":                   {[]string{"up", "--log-level", "w"}, "warn", noFiles},
		"a value after =":           {[]string{"up", "--log-level=w"}, "warn", noFiles},
		"the next of a list":        {[]string{"up", "--authorization-mode", "RBAC,N"}, "RBAC,Node", noFiles},
		"a plugin":                  {[]string{"apiserver", "--enable-admission-plugins", "PodSec"}, "PodSecurity", noFiles},
		"a truth":                   {[]string{"up", "--profiling="}, "true false", noFiles},
		"a topic":                   {[]string{"up", "--help-all="}, "all audit network", noFiles},
		"a shell":                   {[]string{"completion", ""}, "bash zsh fish powershell", noFiles},
		"the file of settings":      {[]string{"up", "--config", ""}, "yaml yml json", extensions},
		"a file of a setting":       {[]string{"up", "--audit-policy-file", ""}, "", files},
		"a folder":                  {[]string{"up", "--data-dir", ""}, "", folders},
		"no file for an address":    {[]string{"up", "--listen", ""}, "", noFiles},
		"no argument for up":        {[]string{"up", ""}, "", noFiles},
		"a snapshot":                {[]string{"snapshot", "restore", ""}, "", files},
		"no image without a daemon": {[]string{"image", "rm", "--data-dir", "/nowhere", ""}, "", noFiles},
	} {
		t.Run(name, func(t *testing.T) {
			words, directive := completed(t, tc.args...)
			for _, want := range strings.Fields(tc.want) {
				if !slices.Contains(words, want) {
					t.Errorf("got %q, want %s among them", words, want)
				}
			}
			if tc.want == "" && len(words) > 0 || directive != tc.directive {
				t.Errorf("got %q with %s, want %q with %s", words, directive, tc.want, tc.directive)
			}
		})
	}
}

func TestEachShellHasACompletionScript(t *testing.T) {
	for _, shell := range shells {
		if out, err := typed(t, "completion", shell); err != nil || !strings.Contains(out, "knarr") || !strings.Contains(out, "__complete") {
			t.Errorf("%s: %v, %d characters", shell, err, len(out))
		}
	}
}

// TestKubectlIsCompletedFromTheCluster runs the bundled kubectl in a process of its own, against a
// real API server.
func TestKubectlIsCompletedFromTheCluster(t *testing.T) {
	kubeconfig := startAPIServer(t)
	ask := func(args ...string) []string {
		cmd := program(t, append([]string{cobra.ShellCompNoDescRequestCmd, "kubectl"}, args...)...)
		cmd.Env = append(cmd.Env, "KUBECONFIG="+kubeconfig, "HOME="+t.TempDir())
		var complaint bytes.Buffer
		cmd.Stderr = &complaint
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, complaint.String())
		}
		words, _ := offered(string(out))
		return words
	}
	for want, args := range map[string][]string{
		"kube-system": {"get", "namespaces", ""},
		"namespaces":  {"get", "namesp"},
		"kube-public": {"get", "pods", "-n", "kube-p"},
	} {
		if words := ask(args...); !slices.Contains(words, want) {
			t.Errorf("kubectl %q: got %q, want %s", args, words, want)
		}
	}
}

// startAPIServer starts an API server that runs until the test ends, and returns its admin
// kubeconfig.
func startAPIServer(t *testing.T) string {
	t.Helper()
	cfg := config.Default()
	// As in `knarr apiserver`.
	cfg.AddFlags(find(t, []string{"version"}).Flags(), config.Process|config.Server)
	dir, err := os.MkdirTemp("", "knarr-") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	cfg.DataDir, cfg.RunDir, cfg.AdvertiseAddress = dir, filepath.Join(dir, "run"), "127.0.0.1"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Listen = l.Addr().String()
	if err := errorsOf(l.Close(), cfg.Complete()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- run.APIServer(ctx, run.Params{Config: &cfg, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Progress: nil,
			Settings: func() map[string]string { return nil }, Ready: func() { close(ready) }})
	}()
	t.Cleanup(func() { stop(); <-ended })
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		t.Fatalf("the API server ended: %v", err)
	}
	return cfg.AdminKubeconfig()
}

func errorsOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return fmt.Errorf("prepare: %w", err)
		}
	}
	return nil
}
