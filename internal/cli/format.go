package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/knarr-project/knarr/internal/clusters"
)

// shellWord quotes a word if a shell would change it.
func shellWord(word string) string {
	if strings.ContainsAny(word, " \t\n'\"\\$&|;<>()*?[]{}`!#~") {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}

// moment formats a time with its age.
func moment(t time.Time) string {
	return t.Local().Format("2006-01-02 15:04:05") + " (" + ago(time.Since(t)) + " ago)"
}

// pastState describes how a cluster ended.
func pastState(r *clusters.Record) string {
	switch r.State() {
	case clusters.Stopped:
		return "was stopped at " + moment(r.Stopped)
	case clusters.Failed:
		return "ended with an error at " + moment(r.Stopped) + ": " + r.Cause
	case clusters.Crashed:
		if r.Rebooted() {
			return "ended with this machine, which has started again since; its last sign is of " + moment(r.Since())
		}
		return "ended without a word (kill -9, out of memory?); its last sign is of " + moment(r.Since())
	}
	return fmt.Sprintf("runs since %s", moment(r.Started))
}
