package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/auth/rotation"
	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/config"
)

func certificatesCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "certificates", Short: "List, renew and replace certificates and keys"}
	cmd.AddCommand(certificatesList(), certificatesRotate(), rotateCACommand(), rotateSAKeysCommand(), rotateEncryptionKeyCommand())
	return cmd
}

// certificateRow is one line of `knarr certificates ls`.
type certificateRow struct {
	Where string `json:"where"` // "server a", "node b" or "cluster"
	pki.Entry
	// State is "trusted" or "signs" for an authority or key.
	State   string `json:"state,omitempty"`
	Warning string `json:"warning,omitempty"`
}

func certificatesList() *cobra.Command {
	s := newSettings()
	var output string
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List all that expires or is rotated, with warnings", Args: cobra.NoArgs,
		Long: "Lists certificates, authorities, kubeconfigs, bootstrap tokens and keys of all servers and nodes, as far as they\n" +
			"tell. Without a running server it lists those in DATA-DIR. Warnings go to the standard error.",
		Example: "sudo knarr certificates ls\nsudo knarr certificates ls -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if output != "" && output != "json" {
				return outputError(output, "json")
			}
			if _, err := s.complete(cmd); err != nil {
				return err
			}
			rows, err := certificateRows(cmd, &s.Config)
			if err != nil {
				return fmt.Errorf("certificates: %w", err)
			}
			if output == "json" {
				return printJSON(cmd.OutOrStdout(), rows)
			}
			return printCertificates(cmd.OutOrStdout(), cmd.ErrOrStderr(), rows, time.Now())
		},
	}
	s.takeFlags(cmd, "data-dir")
	cmd.Flags().StringVarP(&output, "output", "o", "", "`FORMAT` of the output: json, instead of a table")
	config.Enumerate(cmd.Flags().Lookup("output"), "json")
	onlyOnCommandLine(cmd, "output")
	return cmd
}

// certificateRows asks the server of the data folder, or reads the folder.
func certificateRows(cmd *cobra.Command, cfg *config.Config) ([]certificateRow, error) {
	if !hasCluster(cfg.DataDir) {
		return nil, noCluster(clusters.Here(), cfg.DataDir)
	}
	why := serverHere(cfg)
	if why == nil {
		var all rotation.Certificates
		if why = callServer(cmd.Context(), cfg, http.MethodGet, rotation.CertificatesPath, nil, &all); why == nil {
			return listedCertificates(&all, time.Now()), nil
		}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "only this data folder is listed: %v\n", why)
	entries, err := pki.Inventory(cfg.Path("pki"), cfg.AdminKubeconfig())
	if err != nil {
		return nil, err
	}
	var rows []certificateRow
	for _, e := range entries {
		rows = append(rows, rowOf("this folder", e, time.Now()))
	}
	return rows, nil
}

func listedCertificates(all *rotation.Certificates, now time.Time) []certificateRow {
	var rows []certificateRow
	for _, s := range all.Servers {
		for _, e := range s.Certificates {
			rows = append(rows, rowOf("server "+s.Server, e, now))
		}
		if s.Error != "" {
			rows = append(rows, certificateRow{Where: "server " + s.Server, Entry: pki.Entry{Name: "rotation", Kind: "state", Error: s.Error}, Warning: s.Error})
		}
	}
	servers := map[string]bool{}
	for _, s := range all.Servers {
		servers[s.Server] = true
	}
	for _, n := range all.Nodes {
		where := "node " + n.Node
		switch {
		case n.Tells:
			rows = append(rows,
				rowOf(where, pki.Entry{Name: "client", Kind: pki.KindLeaf, Issuer: n.Client.Issuer, Expires: n.Client.Expires, Renewed: true}, now),
				rowOf(where, pki.Entry{Name: "serving", Kind: pki.KindLeaf, Issuer: n.Serving.Issuer, Expires: n.Serving.Expires, Renewed: true}, now))
		case !servers[n.Node]: // a server's own node shares its folder
			rows = append(rows, certificateRow{Where: where, Entry: pki.Entry{Name: "client and serving", Kind: pki.KindLeaf}, State: "unknown: the node's agent does not tell"})
		}
	}
	for _, t := range all.Tokens {
		row := certificateRow{Where: "cluster", Entry: pki.Entry{Name: "bootstrap token " + t.ID, Kind: "token", Expires: t.Expires}}
		if t.Expires.IsZero() {
			row.Warning = "it never expires"
		}
		rows = append(rows, row)
	}
	for _, k := range all.EncryptionKeys {
		row := certificateRow{Where: "cluster", Entry: pki.Entry{Name: k.Provider + " " + k.Name, Kind: "encryption key", Subject: strings.Join(k.Resources, ","), Signs: k.Writes}, State: "reads"}
		if k.Writes {
			row.State = "reads and writes"
		}
		rows = append(rows, row)
	}
	return rows
}

const (
	warnCA   = 365 * 24 * time.Hour
	warnLeaf = 30 * 24 * time.Hour
)

// rowOf adds the state and the warning of an entry.
func rowOf(where string, e pki.Entry, now time.Time) certificateRow {
	row := certificateRow{Where: where, Entry: e}
	if e.Kind == pki.KindCA || e.Kind == pki.KindTokenKey {
		row.State = "trusted"
		if e.Signs {
			row.State = "signs"
		}
	}
	left := e.Expires.Sub(now)
	switch {
	case e.Error != "":
		row.Warning = e.Error
	case e.Expires.IsZero():
	case left <= 0:
		row.Warning = "it has expired"
	case e.Kind == pki.KindCA && e.Signs && left < warnCA:
		row.Warning = "it expires within a year: replace it with `knarr certificates rotate-ca`"
	case e.Kind != pki.KindCA && left < warnLeaf && left < e.Expires.Sub(e.Made)/10:
		row.Warning = "it was not renewed in time; the log of knarr there has the reason"
	}
	return row
}

func printCertificates(out, warnings io.Writer, rows []certificateRow, now time.Time) error {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "WHERE\tNAME\tKIND\tEXPIRES\tLEFT\tSTATE")
	for _, r := range rows {
		expires, left := "-", "-"
		if !r.Expires.IsZero() {
			expires, left = r.Expires.UTC().Format(time.DateTime), "none"
			if d := r.Expires.Sub(now); d > 0 {
				left = ago(d)
			}
		}
		state := r.State
		if r.Kind == pki.KindTokenKey && !r.Made.IsZero() {
			state += " since " + r.Made.UTC().Format(time.DateOnly)
		}
		if r.Renewed {
			state = strings.TrimPrefix(state+", renewed by knarr", ", ")
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", r.Where, r.Name, r.Kind, expires, left, orDash(state))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, r := range rows {
		if r.Warning != "" {
			fmt.Fprintf(warnings, "warning: %s: %s %s: %s\n", r.Where, r.Kind, r.Name, r.Warning)
		}
	}
	return nil
}

func certificatesRotate() *cobra.Command {
	s := newSettings()
	cmd := &cobra.Command{
		Use: "rotate [NAME...]", Short: "Renew this server's certificates now",
		Long: "Renews certificates of the server on this machine, and rewrites its kubeconfigs. NAME is one of\n" +
			"`knarr certificates ls`; without names, all are renewed. Nothing is restarted: new connections use them.\n" +
			"Authorities stay; see `knarr certificates rotate-ca`.",
		Example: "sudo knarr certificates rotate\nsudo knarr certificates rotate apiserver admin",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := completeForServer(s, cmd); err != nil {
				return err
			}
			var entries []pki.Entry
			if err := callServer(cmd.Context(), &s.Config, http.MethodPost, rotation.RotatePath, rotation.RotateRequest{Names: args}, &entries); err != nil {
				return fmt.Errorf("certificates rotate: %w", err)
			}
			var rows []certificateRow
			for _, e := range entries {
				if e.Kind == pki.KindLeaf || e.Kind == pki.KindKubeconfig {
					rows = append(rows, rowOf("this server", e, time.Now()))
				}
			}
			return printCertificates(cmd.OutOrStdout(), cmd.ErrOrStderr(), rows, time.Now())
		},
	}
	s.takeFlags(cmd, "data-dir")
	return cmd
}

// completeForServer completes the settings of a command that needs a running server.
func completeForServer(s *settings, cmd *cobra.Command) error {
	if _, err := s.complete(cmd); err != nil {
		return err
	}
	if err := serverHere(&s.Config); err != nil {
		return fmt.Errorf("%s: %w", cmd.CommandPath()[len("knarr "):], err)
	}
	return nil
}

// callTimeout is the time limit for an answer of the server.
const callTimeout = 30 * time.Second

// callServer calls a path of the data folder's server as admin. The kubeconfig is read for each
// call, because a rotation rewrites it.
func callServer(ctx context.Context, cfg *config.Config, method, path string, in, out any) error {
	access, err := clientcmd.BuildConfigFromFlags("", cfg.AdminKubeconfig())
	if err != nil {
		return err
	}
	access.Timeout = callTimeout
	c, err := rest.HTTPClientFor(access)
	if err != nil {
		return err
	}
	defer c.CloseIdleConnections()
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(access.Host, "/")+path, body)
	if err != nil {
		return err
	}
	response, err := c.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return answeredError{response.StatusCode, cmp.Or(strings.TrimSpace(string(data)), response.Status)}
	}
	return json.Unmarshal(data, out)
}

// answeredError is an error that the server has answered. Trying again does not help, unless it is
// the server's own.
type answeredError struct {
	code int
	text string
}

func (e answeredError) Error() string { return e.text }
