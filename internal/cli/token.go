package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
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
	cmd := &cobra.Command{Use: "token", Short: "Make tokens with which nodes join"}
	cmd.AddCommand(tokenCreateCommand())
	return cmd
}

func tokenCreateCommand() *cobra.Command {
	s := newSettings()
	var ttl time.Duration
	cmd := &cobra.Command{
		Use: "create", Short: "Make a token for `knarr node`", Args: cobra.NoArgs,
		Long: "Prints a token with which another machine joins this cluster, and on the standard error the command for it.\n" +
			"The hash of the cluster's CA is in the token, so that the machine knows the right server.",
		Example: "sudo knarr token create\nsudo knarr token create --ttl 1h",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := s.complete(cmd); err != nil {
				return err
			}
			if err := serverHere(&s.Config); err != nil {
				return fmt.Errorf("token create: %w", err)
			}
			token, server, err := createToken(cmd.Context(), &s.Config, ttl, time.Now())
			if err != nil {
				return fmt.Errorf("token create: %w", err)
			}
			fmt.Fprintln(cmd.OutOrStdout(), token)
			fmt.Fprintf(cmd.ErrOrStderr(), "\non the other machine: knarr node --join %s --token %s\n", server, token)
			return nil
		},
	}
	s.takeFlags(cmd, "data-dir", "advertise-address")
	cmd.Flags().DurationVar(&ttl, "ttl", 24*time.Hour, "lifetime of the token; 0 never expires")
	return cmd
}

// createToken writes a bootstrap token Secret, like kubeadm's, and returns ID.SECRET.CAHASH. The
// hash pins the CA, so that a joining node recognizes the right server.
func createToken(ctx context.Context, cfg *config.Config, ttl time.Duration, now time.Time) (token, server string, err error) {
	restConfig, err := clientcmd.BuildConfigFromFlags("", cfg.AdminKubeconfig())
	if err != nil {
		return "", "", err
	}
	hash, err := caHash(restConfig.CAData)
	if err != nil {
		return "", "", err
	}
	id, secret := strings.ToLower(rand.Text()[:6]), strings.ToLower(rand.Text()[:16])
	data := map[string]string{
		"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
		"auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token", "description": "made by knarr token create",
	}
	if ttl > 0 {
		data["expiration"] = now.Add(ttl).UTC().Format(time.RFC3339)
	}
	c, err := client.Remote(restConfig)
	if err != nil {
		return "", "", err
	}
	_, err = client.Create(ctx, c, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id},
		Type:       "bootstrap.kubernetes.io/token", StringData: data,
	})
	if err != nil {
		return "", "", err
	}
	u, err := url.Parse(restConfig.Host)
	if err != nil {
		return "", "", err
	}
	return id + "." + secret + "." + hash, "https://" + cfg.AdvertiseAddress + ":" + u.Port(), nil
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
