package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"

	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
)

func tokenCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Make tokens with which nodes and servers join"}
	cmd.AddCommand(tokenCreateCommand())
	return cmd
}

// Lifetimes of tokens without --ttl. A server's token gives access to all keys of the cluster.
const (
	nodeTokenLife   = 24 * time.Hour
	serverTokenLife = time.Hour
	maxTokenLife    = 365 * 24 * time.Hour
)

func tokenCreateCommand() *cobra.Command {
	s := newSettings()
	var ttl time.Duration
	var server bool
	cmd := &cobra.Command{
		Use: "create", Short: "Make a token for `knarr node` or `knarr server --join`", Args: cobra.NoArgs,
		Long: "Prints a token with which another machine joins this cluster, and on the standard error the command for it.\n" +
			"The hash of the cluster's CA is in the token, so that the machine knows the right server. A token is for\n" +
			"nodes, or with --server for further servers. Keep a token for servers secret: it gives all keys of the cluster.",
		Example: "sudo knarr token create > token\nsudo knarr token create --server --ttl 30m > token",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := s.complete(cmd); err != nil {
				return err
			}
			kind := tokenKind{command: "node", group: nodeTokens, life: nodeTokenLife}
			if server {
				kind = tokenKind{command: "server", group: serverTokens, life: serverTokenLife}
			}
			if cmd.Flags().Changed("ttl") {
				kind.life = ttl
			}
			if kind.life < time.Minute || kind.life > maxTokenLife {
				return usageError(cmd, fmt.Errorf("--ttl: %s is not usable: between 1m and 8760h, a year; a token that never expires is a key that nobody changes", kind.life))
			}
			if err := serverReachable(&s.Config); err != nil {
				return fmt.Errorf("token create: %w", err)
			}
			token, url, err := createToken(cmd.Context(), &s.Config, kind, time.Now())
			if err != nil {
				return fmt.Errorf("token create: %w", err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), token)
			fmt.Fprintf(cmd.ErrOrStderr(), "\non the other machine, with the token in FILE: knarr %s --join %s --token-file FILE\n", kind.command, url)
			return nil
		},
	}
	s.takeFlags(cmd, "data-dir", "advertise-address")
	cmd.Flags().BoolVar(&server, "server", false, "make a token for a further server instead of a node")
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "lifetime of the token, from 1m to 8760h (default: 24h, with --server 1h)")
	onlyOnCommandLine(cmd, "server", "ttl")
	return cmd
}

// Groups of tokens (package rbac gives them their rights).
const (
	nodeTokens   = "system:bootstrappers:kubeadm:default-node-token"
	serverTokens = "system:bootstrappers:knarr:servers"
)

// tokenKind is what a token is for.
type tokenKind struct {
	command, group string
	life           time.Duration
}

// createToken writes a bootstrap token Secret, like kubeadm's, and returns ID.SECRET.CAHASH. The
// hash pins the CA, so that a joining machine recognizes the right server.
func createToken(ctx context.Context, cfg *config.Config, kind tokenKind, now time.Time) (token, server string, err error) {
	restConfig, err := clientcmd.BuildConfigFromFlags("", cfg.AdminKubeconfig())
	if err != nil {
		return "", "", err
	}
	hash, err := caHash(restConfig.CAData)
	if err != nil {
		return "", "", err
	}
	id, secret := strings.ToLower(rand.Text()[:6]), strings.ToLower(rand.Text()[:16])
	reach, pool, err := anyServer(restConfig, cfg.DataDir)
	if err != nil {
		return "", "", err
	}
	c, err := client.Remote(reach)
	if err != nil {
		return "", "", err
	}
	data := map[string]string{
		"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true",
		"auth-extra-groups": kind.group, "description": "made by knarr token create, for knarr " + kind.command,
		"expiration": now.Add(kind.life).UTC().Format(time.RFC3339),
	}
	if kind.group == nodeTokens {
		data["usage-bootstrap-signing"] = "true" // of the ConfigMap cluster-info, as kubeadm's
	}
	_, err = client.Create(ctx, c, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id},
		Type:       "bootstrap.kubernetes.io/token", StringData: data,
	})
	if err != nil {
		return "", "", err
	}
	return id + "." + secret + "." + hash, joinURLs(restConfig.Host, cfg.AdvertiseAddress, pool), nil
}

func caHash(pem []byte) (string, error) {
	if len(pem) == 0 {
		return "", errors.New("the kubeconfig holds no CA")
	}
	certs, err := cert.ParseCertsPEM(pem)
	if err != nil {
		return "", err
	}
	return strings.TrimPrefix(pki.CertificateHash(certs[0]), "sha256:"), nil
}
