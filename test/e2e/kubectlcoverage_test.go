package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	kubectlcmd "k8s.io/kubectl/pkg/cmd"
)

// The bundled kubectl has upstream's version, so its tree lists all commands.
func TestEveryCommandOfKubectlIsOnAPage(t *testing.T) {
	used := usedCommands(t)
	forEachLeaf(kubectlcmd.NewKubectlCommand(kubectlcmd.KubectlOptions{}), nil, func(path []string) {
		name := strings.Join(path, " ")
		if !slices.ContainsFunc(used, func(line string) bool { return strings.HasPrefix(line+" ", name+" ") }) {
			t.Errorf("kubectl %s is on no page of testdata/kubectl", name)
		}
	})
}

// usedCommands returns the lines of all pages that run kubectl.
func usedCommands(t *testing.T) (lines []string) {
	files, err := filepath.Glob(filepath.Join("testdata", "kubectl", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		sections, err := readPage(string(text))
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, s := range sections {
			for _, c := range s.commands {
				lines = append(lines, strings.Join(c.args, " "))
			}
		}
	}
	return lines
}

// forEachLeaf calls fn for every command below command that has no subcommands.
func forEachLeaf(command *cobra.Command, path []string, fn func(path []string)) {
	if !command.HasAvailableSubCommands() {
		fn(path)
		return
	}
	for _, below := range command.Commands() {
		if below.IsAvailableCommand() {
			forEachLeaf(below, append(slices.Clone(path), below.Name()), fn)
		}
	}
}
