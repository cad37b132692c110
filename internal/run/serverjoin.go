package run

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/controlplane"
	"github.com/knarr-project/knarr/internal/failpoint"
	"github.com/knarr-project/knarr/internal/member"
	"github.com/knarr-project/knarr/internal/process"
	"github.com/knarr-project/knarr/internal/version"
)

// joining is the phase in which a server fetches the keys of the cluster that it joins. It is empty
// for a server that does not join.
func (p Params) joining() process.Phase {
	joined, err := controlplane.LoadJoined(p.Config.DataDir)
	if p.Config.Join == "" && joined == nil && err == nil {
		return nil
	}
	return process.Phase{{Name: "membership", Start: func(ctx context.Context) (func() error, error) {
		if err != nil {
			return nil, err
		}
		return nil, joinServers(ctx, p.Config, joined, p.Log)
	}}}
}

// joinServers makes this machine a server of an existing cluster, as far as keys and settings go;
// the store follows (controlplane.Server.StartStore). A machine that has the keys already needs no
// token: it goes on from the record of the earlier start.
func joinServers(ctx context.Context, cfg *config.Config, joined *controlplane.Joined, log *slog.Logger) error {
	has, err := hasKeys(cfg)
	if err != nil {
		return err
	}
	cfg.Join = firstReachable(ctx, cfg.Join)
	switch {
	case joined != nil && has:
		if urls := config.JoinURLs(cfg.Join); len(urls) > 0 && urls[0] != joined.Server {
			joined.Servers = slices.Concat(urls[1:], []string{joined.Server}, joined.Servers)
			joined.Server = urls[0]
			if err := joined.Save(cfg.DataDir); err != nil {
				return err
			}
		}
	case has:
		if joined, err = comeBack(ctx, cfg); err != nil {
			return err
		}
	default:
		if cfg.Join == "" {
			cfg.Join = joined.Server
		}
		if joined, err = fetchKeys(ctx, cfg, log); err != nil {
			return err
		}
	}
	if err := cfg.Adopt(joined.Settings, false); err != nil {
		return err
	}
	return controlplane.AdoptEncryption(cfg)
}

func hasKeys(cfg *config.Config) (bool, error) {
	_, err := os.Stat(cfg.Path("pki", "ca.key"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// serverHasJoined reports whether the data folder has the keys of a cluster that it joins.
func serverHasJoined(cfg *config.Config) bool {
	joined, err := controlplane.LoadJoined(cfg.DataDir)
	has, statErr := hasKeys(cfg)
	return err != nil || statErr != nil || joined != nil && has
}

// comeBack is for a server that has the cluster's keys and no record, as the first one of a cluster
// that has lost its store. It has to have the same CA as the server that it joins.
func comeBack(ctx context.Context, cfg *config.Config) (*controlplane.Joined, error) {
	if entries, err := os.ReadDir(cfg.Path("etcd", "member")); err == nil && len(entries) > 0 {
		return nil, fmt.Errorf("--join %s: %s has a cluster of its own already; a server that joins needs an empty data folder (`knarr purge`, or another --data-dir). A server of this cluster starts without --join", cfg.Join, cfg.DataDir)
	}
	pem, err := os.ReadFile(cfg.Path("pki", "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	urls := config.JoinURLs(cfg.Join)
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	var conn net.Conn
	for _, url := range urls {
		if conn, err = dialer.DialContext(ctx, "tcp", strings.TrimPrefix(url, "https://")); err == nil {
			break
		}
	}
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		return nil, fmt.Errorf("--join %s: the keys in %s are those of another cluster; a server that joins needs an empty data folder (`knarr purge`, or another --data-dir)", cfg.Join, cfg.Path("pki"))
	}
	if err != nil {
		return nil, fmt.Errorf("join %s: %w", cfg.Join, err)
	}
	if err := conn.Close(); err != nil {
		return nil, err
	}
	joined := &controlplane.Joined{Server: urls[0], Servers: urls[1:], Opened: true}
	return joined, joined.Save(cfg.DataDir)
}

// fetchKeys fetches the cluster's keys and settings with a token, and writes them. After a crash it
// is repeated as a whole: the folder of keys appears at once.
func fetchKeys(ctx context.Context, cfg *config.Config, log *slog.Logger) (*controlplane.Joined, error) {
	if entries, err := os.ReadDir(cfg.Path("pki")); err == nil && len(entries) > 0 {
		return nil, fmt.Errorf("%s has certificates of a node already: a server that joins needs an empty data folder (`knarr purge`, or another --data-dir)", cfg.Path("pki"))
	}
	token, err := cfg.JoinToken()
	switch {
	case err != nil:
		return nil, err
	case token == "":
		return nil, errors.New("--token-file is missing: this machine has not joined yet; `knarr token create --server` on a server makes a token")
	}
	bearer, hash, err := splitToken(token)
	if err != nil {
		return nil, err
	}
	urls := config.JoinURLs(cfg.Join)
	ca, err := firstPinnedCA(ctx, urls, hash)
	if err != nil {
		return nil, err
	}
	answer, err := askForKeys(ctx, cfg, urls, bearer, ca)
	if err != nil {
		return nil, err
	}
	if err := fits(cfg, hash, answer); err != nil {
		return nil, fmt.Errorf("join %s: %w", cfg.Join, err)
	}
	joined := &controlplane.Joined{Server: urls[0], Servers: slices.Concat(urls[1:], answer.Servers), Settings: answer.Settings}
	if err := joined.Save(cfg.DataDir); err != nil {
		return nil, err
	}
	failpoint.Here("join-recorded")
	if err := controlplane.WriteKeys(cfg.Path("pki"), answer.Files); err != nil {
		return nil, err
	}
	log.Info("this server has the keys of the cluster", "server", cfg.Join)
	return joined, nil
}

// askForKeys sends the token to the servers, which must have a certificate of the pinned CA, until
// one answers.
func askForKeys(ctx context.Context, cfg *config.Config, urls []string, bearer string, ca []byte) (answer member.JoinAnswer, err error) {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	c := &http.Client{
		Transport: bearerTransport{bearer, &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}},
		// A redirect could lead to another server.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       time.Minute,
	}
	defer c.CloseIdleConnections()
	request := member.JoinRequest{Name: cfg.NodeName, Kubernetes: version.Kubernetes}
	for _, url := range urls {
		err = member.Ask(ctx, c, http.MethodPost, url+member.ServersPath, request, &answer)
		if status := member.StatusOf(err); err == nil || status >= 400 && status < 500 {
			break
		}
	}
	switch member.StatusOf(err) {
	case http.StatusUnauthorized:
		return answer, errors.New("the server does not know the token, or it has expired: make a new one on a server with `knarr token create --server`")
	case http.StatusForbidden:
		return answer, errors.New("the token is not for servers; `knarr token create --server` makes one that is")
	case http.StatusNotFound:
		return answer, fmt.Errorf("join %s: no knarr with several servers answers there; its version must be this one's (%s)", cfg.Join, version.Current().Knarr)
	}
	if err != nil {
		return answer, fmt.Errorf("join %s: %w", cfg.Join, err)
	}
	return answer, answer.Check()
}

// bearerTransport authenticates requests with a token.
type bearerTransport struct {
	token string
	*http.Transport
}

func (b bearerTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.Transport.RoundTrip(r)
}

// fits refuses an answer that does not belong to the token, or settings of this machine that are
// not the cluster's. It changes nothing on the disk.
func fits(cfg *config.Config, hash string, answer member.JoinAnswer) error {
	cas, err := cert.ParseCertsPEM(answer.Files["ca.crt"]) // several during a rotation
	if err != nil {
		return fmt.Errorf("the server's CA: %w", err)
	}
	if !slices.ContainsFunc(cas, func(c *x509.Certificate) bool { return pki.CertificateHash(c) == hash }) {
		return errors.New("the server's CA is not the one that the token was made for")
	}
	switch {
	case answer.Embedded && cfg.SharesStore():
		return errors.New("the cluster's servers contain the store: leave out --store")
	case !answer.Embedded && !cfg.SharesStore():
		return errors.New("the cluster's store is an outside etcd: give the same --store as the other servers")
	}
	if file := cfg.APIServer.EncryptionConfig; file != "" {
		own, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("encryption-provider-config: %w", err)
		}
		if !bytes.Equal(bytes.TrimSpace(own), bytes.TrimSpace(answer.Files[member.EncryptionFile])) {
			return fmt.Errorf("--encryption-provider-config: %s differs from the cluster's: leave the flag out, or give the same file", file)
		}
	}
	copied := *cfg
	return copied.Adopt(answer.Settings, true)
}
