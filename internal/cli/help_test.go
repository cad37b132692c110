package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

func TestHelpFitsAScreen(t *testing.T) {
	walk(Root(), func(cmd *cobra.Command) {
		if !cmd.IsAvailableCommand() && cmd.HasParent() || cmd.Name() == "help" || cmd.Name() == "kubectl" {
			return
		}
		args := append(strings.Fields(cmd.CommandPath())[1:], "--help")
		out, err := typed(t, args...)
		if err != nil {
			t.Error(err)
		}
		most := 50
		if !cmd.HasParent() {
			most = 56 // the list of all commands
		}
		if lines := strings.Count(out, "\n"); lines > most {
			t.Errorf("%s --help has %d lines, %d are most", cmd.CommandPath(), lines, most)
		}
		checkWidth(t, cmd.CommandPath(), out)
		if cmd.Flags().Lookup(helpAll) == nil {
			return
		}
		if n := len(commonOf(cmd)); n > 16 {
			t.Errorf("%s --help begins with %d settings", cmd.CommandPath(), n)
		}
		all, err := typed(t, append(args[:len(args)-1], "--help-all")...)
		if err != nil {
			t.Error(err)
		}
		checkWidth(t, cmd.CommandPath(), all)
		for _, flag := range settingsOf(cmd, "") {
			if !strings.Contains(all, "--"+flag.Name+" ") && !strings.Contains(all, "--"+flag.Name+"\n") {
				t.Errorf("%s --help-all does not show --%s", cmd.CommandPath(), flag.Name)
			}
		}
	})
}

func checkWidth(t *testing.T, command, text string) {
	t.Helper()
	for line := range strings.SplitSeq(text, "\n") {
		if utf8.RuneCountInString(line) > width {
			t.Errorf("%s: a line of help is wider than %d columns: %s", command, width, line)
		}
	}
}

func TestHelpShowsOneTopicWithDetails(t *testing.T) {
	for _, args := range [][]string{{"up", "--help-all=audit"}, {"up", "--help-all", "audit"}} {
		out, err := typed(t, args...)
		if err != nil || !strings.Contains(out, "--audit-log-mode MODE") || !strings.Contains(out, "blocking-strict: a request whose first event") || strings.Contains(out, "--max-pods") {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

func TestEveryCommandIsInAGroup(t *testing.T) {
	for _, cmd := range Root().Commands() {
		switch cmd.Name() {
		case "completion", "version", "help":
		default:
			if cmd.GroupID == "" {
				t.Errorf("knarr %s has no group: see groups.go", cmd.Name())
			}
		}
		if strings.HasSuffix(cmd.Short, ".") || len(cmd.Short) > 75 {
			t.Errorf("knarr %s: the short text is one line without a full stop: %s", cmd.Name(), cmd.Short)
		}
	}
}
