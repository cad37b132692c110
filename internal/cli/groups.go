package cli

import "github.com/spf13/cobra"

// Groups of commands in `knarr --help`, by purpose.
const (
	groupRun       = "run"
	groupUse       = "use"
	groupAsk       = "ask"
	groupCare      = "care"
	groupComponent = "component"
)

// groups are in the order of help.
var groups = []*cobra.Group{
	{ID: groupRun, Title: "Run a cluster"},
	{ID: groupUse, Title: "Use it"},
	{ID: groupAsk, Title: "Ask it"},
	{ID: groupCare, Title: "Look after it"},
	{ID: groupComponent, Title: "Run a single component, in place of upstream's"},
}

// inGroup puts the commands that name no group into a group.
func inGroup(id string, commands ...*cobra.Command) []*cobra.Command {
	for _, cmd := range commands {
		if cmd.GroupID == "" {
			cmd.GroupID = id
		}
	}
	return commands
}
