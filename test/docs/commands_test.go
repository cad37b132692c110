package docs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"

	"github.com/knarr-project/knarr/internal/cli"
	"github.com/knarr-project/knarr/internal/cli/insight"
)

// asKnarr makes the test program act as knarr, so that commands of pages run without a build.
const asKnarr = "KNARR_DOCS_TEST_AS_KNARR"

func TestMain(m *testing.M) {
	if os.Getenv(asKnarr) != "" {
		err := cli.Execute(context.Background(), append([]string{"knarr"}, os.Args[1:]...))
		if told := cli.ExitStatus(0); err != nil && !errors.As(err, &told) {
			fmt.Fprintln(os.Stderr, "knarr:", err)
		}
		os.Exit(cli.Status(err))
	}
	os.Exit(m.Run())
}

// TestCommandsExist checks that every `knarr …` on a page is a command with these flags.
func TestCommandsExist(t *testing.T) {
	tree := cli.Root()
	for _, p := range pages(t) {
		for _, c := range p.Commands("knarr") {
			words := Words(c.Target)[1:]
			if len(words) > 0 && words[0] == "kubectl" {
				continue
			}
			if problem := check(tree, words); problem != "" {
				t.Errorf("%s:%d: %s: %s", p.Path, c.Line, c.Target, problem)
			}
		}
	}
}

// TestKubectlCommandsExist does the same for `kubectl …` and `knarr kubectl …`.
func TestKubectlCommandsExist(t *testing.T) {
	tree := kubectlcmd.NewKubectlCommand(kubectlcmd.KubectlOptions{})
	for _, p := range pages(t) {
		for _, c := range append(p.Commands("knarr kubectl"), p.Commands("kubectl")...) {
			words := Words(strings.TrimPrefix(c.Target, "knarr "))[1:]
			if left, _, err := insight.TakeAt(words, time.Now()); err == nil && strings.HasPrefix(c.Target, "knarr ") {
				words = left // knarr's own flag
			}
			if problem := check(tree, words); problem != "" {
				t.Errorf("%s:%d: %s: %s", p.Path, c.Line, c.Target, problem)
			}
		}
	}
}

// check looks up a command line in a tree of commands. It returns the problem, or "".
func check(tree *cobra.Command, words []string) string {
	words = slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == "..." || w == "…" })
	if len(words) == 0 {
		return ""
	}
	cmd, rest, err := tree.Find(words)
	if err != nil {
		return err.Error()
	}
	if cmd == tree && !strings.HasPrefix(words[0], "-") {
		return "no such command"
	}
	if cmd.HasSubCommands() && (!cmd.Runnable() || tree.Name() == "knarr") && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") && !placeholder(rest[0]) {
		return "no such subcommand"
	}
	for i := 0; i < len(rest); i++ {
		if rest[i] == "--" {
			break
		}
		problem := checkFlag(cmd, rest[i])
		if problem != "" && cmd.DisableFlagParsing && cmd.Name() == "install" {
			problem = checkFlag(installed(tree, rest), rest[i])
		}
		if problem != "" {
			return problem
		}
	}
	return ""
}

// installed returns the command that `knarr install` makes a service. It takes that one's flags.
func installed(tree *cobra.Command, rest []string) *cobra.Command {
	role := "up"
	for _, one := range []string{"server", "node"} {
		if slices.Contains(rest, "--"+one) {
			role = one
		}
	}
	cmd, _, _ := tree.Find([]string{role})
	return cmd
}

func placeholder(word string) bool { return strings.ToUpper(word) == word }

func checkFlag(cmd *cobra.Command, word string) string {
	name, long := strings.CutPrefix(word, "--")
	name, _, _ = strings.Cut(name, "=")
	if long {
		if name == "help" || lookup(cmd, func(f *pflag.FlagSet) *pflag.Flag { return f.Lookup(name) }) != nil {
			return ""
		}
		return "no flag --" + name
	}
	short, ok := strings.CutPrefix(word, "-")
	if !ok || short == "" || short == "h" {
		return ""
	}
	if lookup(cmd, func(f *pflag.FlagSet) *pflag.Flag { return f.ShorthandLookup(short[:1]) }) == nil {
		return "no flag -" + short[:1]
	}
	return ""
}

// lookup finds a flag among the command's own and its parents'.
func lookup(cmd *cobra.Command, find func(*pflag.FlagSet) *pflag.Flag) *pflag.Flag {
	for _, set := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags(), cmd.InheritedFlags()} {
		if f := find(set); f != nil {
			return f
		}
	}
	return nil
}

// TestBlocksWithoutAClusterRun runs the blocks that say `<!-- walk: alone -->`: they need no
// cluster and no root.
func TestBlocksWithoutAClusterRun(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "knarr")); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, p := range pages(t) {
		for _, b := range p.Blocks {
			if !b.Has("alone") {
				continue
			}
			for _, s := range b.Steps() {
				ran++
				cmd := exec.Command("bash", "-c", s.Command)
				cmd.Dir = t.TempDir()
				cmd.Env = append(os.Environ(), asKnarr+"=1", "PATH="+bin+":"+os.Getenv("PATH"))
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%s:%d: %s: %v\n%s", p.Path, s.Line, s.Command, err, out)
				}
			}
		}
	}
	if ran == 0 {
		t.Error("no page has such a block")
	}
}

// TestFilesInWalksAreComplete checks that each named file of a page can be written and is shown
// once.
func TestFilesInWalksAreComplete(t *testing.T) {
	for _, p := range pages(t) {
		seen := map[string]bool{}
		for _, b := range p.Blocks {
			name, _, ok := b.File()
			if ok && seen[name] {
				t.Errorf("%s:%d: the page shows %s twice", p.Path, b.Line, name)
			}
			seen[name] = true
		}
	}
}
