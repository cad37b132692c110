package cli

import "github.com/spf13/cobra"

// Groups of commands in `knarr --help`, by what a user wants.
const (
	groupRun       = "run"
	groupUse       = "use"
	groupCare      = "care"
	groupComponent = "component"
)

// groups are in the order in which help shows them.
var groups = []*cobra.Group{
	{ID: groupRun, Title: "Run a cluster"},
	{ID: groupUse, Title: "Use it"},
	{ID: groupCare, Title: "Look after it"},
	{ID: groupComponent, Title: "Run a single component, in place of upstream's"},
}

// inGroup puts commands into a group that do not name one.
func inGroup(id string, commands ...*cobra.Command) []*cobra.Command {
	for _, cmd := range commands {
		if cmd.GroupID == "" {
			cmd.GroupID = id
		}
	}
	return commands
}
