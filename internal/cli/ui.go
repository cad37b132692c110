package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/knarr-project/knarr/internal/auth/session"
)

// page are the flags of `knarr ui`.
type page struct {
	kubeconfig, context, dataDir string
	open                         bool
}

func uiCommand() *cobra.Command {
	p := &page{}
	cmd := &cobra.Command{
		Use: "ui", Short: "Open the page of the cluster in a browser", Args: cobra.NoArgs,
		Long: "Prints a link to the page that the API server serves at /ui/. The page acts as the kubeconfig's user, and does\n" +
			"nothing that kubectl would not. The link works once, within a minute. The session that it begins ends after eight\n" +
			"hours (one hour for users without a client certificate), after an hour without use, or by logging out.\n\n" +
			"A browser warns of the cluster's certificate, unless it trusts the cluster's authority: compare the fingerprint.",
		Example: "sudo knarr ui\nknarr ui --kubeconfig cluster.yaml --open",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.run(cmd.Context(), cmd.OutOrStdout()); err != nil {
				return fmt.Errorf("ui: %w", err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of the cluster (default: that of `knarr kubectl`)")
	f.StringVar(&p.context, "context", "", "`NAME` of the kubeconfig's context (default: its current one)")
	f.StringVar(&p.dataDir, "data-dir", "", "take the kubeconfig of the cluster with this data `DIR` or name on this machine")
	f.BoolVar(&p.open, "open", false, "open the link in this machine's browser, too")
	onlyOnCommandLine(cmd, "kubeconfig", "context", "data-dir", "open")
	return cmd
}

func (p *page) run(ctx context.Context, out io.Writer) error {
	access, err := p.access()
	if err != nil {
		return err
	}
	server, link, fingerprint, err := makeLink(ctx, access)
	if err != nil {
		return err
	}
	target := server + link.Path
	fmt.Fprintln(out, target)
	fmt.Fprintf(out, "user %s; the link works once, until %s\n", link.User, link.Expires.Local().Format(time.TimeOnly))
	if fingerprint != "" {
		fmt.Fprintf(out, "SHA-256 fingerprint of the server's certificate:\n%s\n", fingerprint)
	}
	if !p.open {
		return nil
	}
	opener := "xdg-open"
	if runtime.GOOS == "darwin" {
		opener = "open"
	}
	if err := exec.CommandContext(ctx, opener, target).Run(); err != nil {
		return fmt.Errorf("--open: %s: %w; open the link by hand", opener, err)
	}
	return nil
}

// access reads the kubeconfig.
func (p *page) access() (*rest.Config, error) {
	loader, err := kubeconfig(p.dataDir, p.kubeconfig, p.context)
	if err != nil {
		return nil, err
	}
	access, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no cluster is configured: --kubeconfig or --data-dir names one")
	}
	return access, err
}

// makeLink asks the kubeconfig's server for a link. The session lives in that server, so the page
// is opened there. fingerprint is that of the server's certificate.
func makeLink(ctx context.Context, access *rest.Config) (server string, link session.Link, fingerprint string, err error) {
	u, err := url.Parse(access.Host)
	if err != nil || u.Scheme != "https" || strings.Trim(u.Path, "/") != "" {
		return "", link, "", fmt.Errorf("kubeconfig: server %q is not usable: https://HOST:PORT without a path", access.Host)
	}
	access = rest.CopyConfig(access)
	access.Timeout = callTimeout
	client, err := rest.HTTPClientFor(access)
	if err != nil {
		return "", link, "", err
	}
	defer client.CloseIdleConnections()
	server = "https://" + u.Host
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server+session.LinksPath, nil)
	if err != nil {
		return "", link, "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", link, "", err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	switch {
	case err != nil:
		return "", link, "", err
	case response.StatusCode == http.StatusNotFound:
		return "", link, "", fmt.Errorf("%s serves no page: it is turned off (--ui), or the server is no knarr", server)
	case response.StatusCode != http.StatusOK:
		return "", link, "", answeredError{response.StatusCode, cmp.Or(strings.TrimSpace(string(data)), response.Status)}
	}
	if err := json.Unmarshal(data, &link); err != nil {
		return "", link, "", fmt.Errorf("the server's answer: %w", err)
	}
	if response.TLS != nil && len(response.TLS.PeerCertificates) > 0 {
		fingerprint = colons(sha256.Sum256(response.TLS.PeerCertificates[0].Raw))
	}
	return server, link, fingerprint, nil
}

// colons writes a fingerprint as browsers do.
func colons(sum [sha256.Size]byte) string {
	parts := make([]string, len(sum))
	for i, b := range sum {
		parts[i] = fmt.Sprintf("%02X", b)
	}
	return strings.Join(parts, ":")
}
