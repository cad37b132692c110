package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/knarr-project/knarr/internal/cli/status"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/member"
)

func memberCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "member", Short: "List, remove and promote the servers that hold the store"}
	cmd.AddCommand(memberList(), memberRemove(), memberPromote())
	return cmd
}

func memberList() *cobra.Command {
	var output string
	cmd := memberSubcommand("ls", "List the servers that hold the store", "Lists the servers that hold the store: their addresses, who leads, whether each one answers, its version, and the\n"+
		"size of its database. A learner receives all writes and has no vote yet; it becomes a voter when it has caught up.\n"+
		"While a majority does not answer, it lists the members that this server knows, and which of them answer.", cobra.NoArgs,
		func(cmd *cobra.Command, api memberAPI, _ []string) error {
			if output != "" && output != "json" {
				return outputError(output, "json")
			}
			list, err := api.list(cmd.Context())
			if err != nil {
				return err
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), list)
			}
			if list.Outdated != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "a majority of the voters does not answer (%s): writes wait, and these are the members that this server knows\n", list.Outdated)
			}
			return printMembers(cmd.OutOrStdout(), list.Members)
		})
	cmd.Example = "sudo knarr member ls\nsudo knarr member ls -o json"
	cmd.Flags().StringVarP(&output, "output", "o", "", "`FORMAT` of the output: json, instead of a table")
	config.Enumerate(cmd.Flags().Lookup("output"), "json")
	onlyOnCommandLine(cmd, "output")
	return cmd
}

func memberRemove() *cobra.Command {
	cmd := memberSubcommand("rm NAME", "Remove a server from the store for good", "Removes a server from the store: one that is gone for good, or one that runs and then ends. It cannot come back with\n"+
		"its data; after `knarr purge` there it can join again. NAME is a name or an ID of `knarr member ls`. The command is refused if the\n"+
		"others could not accept writes without it.", cobra.ExactArgs(1),
		func(cmd *cobra.Command, api memberAPI, args []string) error {
			list, err := api.change(cmd.Context(), member.RemovePath, args[0])
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is removed; %s left\n", args[0], count(len(list.Members), "server is", "servers are"))
			return nil
		})
	cmd.Example = "sudo knarr member rm server-2"
	return cmd
}

func memberPromote() *cobra.Command {
	cmd := memberSubcommand("promote NAME", "Give a learner a vote", "Gives a learner a vote. A server that joins does this itself when it has caught up; the command is for one that was\n"+
		"stopped before. NAME is a name or an ID of `knarr member ls`.", cobra.ExactArgs(1),
		func(cmd *cobra.Command, api memberAPI, args []string) error {
			if _, err := api.change(cmd.Context(), member.PromotePath, args[0]); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s is a voter\n", args[0])
			return nil
		})
	cmd.Example = "sudo knarr member promote server-2"
	return cmd
}

// memberSubcommand returns a command that talks to the server of the data folder.
func memberSubcommand(use, short, long string, args cobra.PositionalArgs, do func(*cobra.Command, memberAPI, []string) error) *cobra.Command {
	s := newSettings()
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Args: args}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name := "member " + cmd.Name()
		if _, err := s.complete(cmd); err != nil {
			return err
		}
		kubeconfig := s.Kubeconfig
		if kubeconfig == "" {
			if err := serverHere(&s.Config); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			kubeconfig = s.AdminKubeconfig()
		}
		api, err := newMemberAPI(kubeconfig)
		if err == nil {
			err = do(cmd, api, args)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
	s.takeFlags(cmd, "data-dir")
	cmd.Flags().StringVar(&s.Kubeconfig, "kubeconfig", "", "admin kubeconfig `FILE` of a server elsewhere, instead of --data-dir")
	return cmd
}

// memberAPI is the API server's API of members.
type memberAPI struct {
	client *http.Client
	server string
}

func newMemberAPI(kubeconfig string) (memberAPI, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return memberAPI{}, err
	}
	c, err := rest.HTTPClientFor(cfg)
	return memberAPI{c, strings.TrimSuffix(cfg.Host, "/")}, err
}

func (a memberAPI) list(ctx context.Context) (list member.List, err error) {
	err = member.Ask(ctx, a.client, http.MethodGet, a.server+member.Path, nil, &list)
	return list, err
}

func (a memberAPI) change(ctx context.Context, path, name string) (list member.List, err error) {
	err = member.Ask(ctx, a.client, http.MethodPost, a.server+path, member.Request{Name: name}, &list)
	return list, err
}

func printMembers(to io.Writer, members []member.Member) error {
	out := tabwriter.NewWriter(to, 0, 0, 3, ' ', 0)
	fmt.Fprintln(out, "NAME\tID\tROLE\tLEADER\tSTORE\tAPI SERVER\tVERSION\tSIZE\tHEALTH")
	for _, m := range members {
		leader, size := "", ""
		if m.Leader {
			leader = "yes"
		}
		if m.Size > 0 {
			size = status.Bytes(m.Size)
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", orDash(m.Name), m.ID, m.Role(), orDash(leader), m.PeerURL, orDash(m.Server), orDash(m.Version), orDash(size), m.Health)
	}
	return out.Flush()
}

func count(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}
