package controlplane

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/auth/rotation"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
)

const firstKey = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aesgcm: {keys: [{name: first, secret: c2VjcmV0IGlzIHNlY3VyZSwgb3IgaXMgaXQ/AAAAAAA=}]}
`

// encryptedFolder returns a data folder whose server encrypts Secrets with a key of knarr's.
func encryptedFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pki", "encryption.yaml"), []byte(firstKey), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// askToRewrite asks the server to encrypt objects again until it is done.
func askToRewrite(t *testing.T, s *Server) (changed int, err error) {
	t.Helper()
	c := readKubeconfig(t, s).client()
	defer c.CloseIdleConnections()
	for from := ""; ; {
		body, err := json.Marshal(rotation.RewriteRequest{From: from})
		if err != nil {
			t.Fatal(err)
		}
		response, err := c.Post(s.URL()+rotation.RewritePath, "application/json", bytes.NewReader(body))
		if err != nil {
			return changed, err
		}
		data, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK {
			return changed, fmt.Errorf("%s: %s: %w", response.Status, data, err)
		}
		var answer rotation.RewriteAnswer
		if err := json.Unmarshal(data, &answer); err != nil {
			return changed, err
		}
		changed += answer.Changed
		if from = answer.Next; from == "" {
			return changed, nil
		}
	}
}

// TestTheEncryptionKeyIsReplaced restarts the server after each step: a rotation goes on from any
// point.
func TestTheEncryptionKeyIsReplaced(t *testing.T) {
	dir := encryptedFolder(t)
	s, stop := startServer(t, dir, nil)
	if _, err := client.Create(t.Context(), s.own(), &corev1.Secret{ObjectMeta: meta("default", "rum"), StringData: map[string]string{"bottles": "15"}}); err != nil {
		t.Fatal(err)
	}
	key := func() string {
		t.Helper()
		kv, _, err := s.raw.Get(t.Context(), "/registry/secrets/default/rum", 0)
		if err != nil || kv == nil {
			t.Fatalf("the Secret is not in the store: %v", err)
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(string(kv.Value[:60]), "k8s:enc:aesgcm:v1:"), ":")
		return name
	}
	readable := func() {
		t.Helper()
		have, err := client.Get[*corev1.Secret](t.Context(), s.own(), "default", "rum")
		if err != nil || string(have.Data["bottles"]) != "15" {
			t.Errorf("the Secret cannot be read: %v", err)
		}
	}
	again := func() {
		t.Helper()
		stop()
		s, stop = startServer(t, dir, nil)
		readable()
	}
	if key() != "first" {
		t.Fatalf("the Secret is encrypted with %q", key())
	}
	if _, err := askToRewrite(t, s); err == nil || !strings.Contains(err.Error(), `the phase is ""`) {
		t.Errorf("objects were encrypted again without a rotation: %v", err)
	}
	for _, step := range []rotation.Step{rotation.Start, rotation.Switch} {
		eventually(t, string(step), func() error { return take(t, s, rotation.StepRequest{Name: rotation.Encryption, Step: step}) })
		readable()
		again()
		if key() != "first" {
			t.Errorf("after %s, the Secret is encrypted with %q", step, key())
		}
	}
	eventually(t, "objects are encrypted again", func() error {
		changed, err := askToRewrite(t, s)
		if err == nil && changed == 0 {
			err = errors.New("none")
		}
		return err
	})
	fresh := key()
	if !strings.HasPrefix(fresh, "knarr-") {
		t.Errorf("the Secret is encrypted with %q", fresh)
	}
	again()
	eventually(t, "the last step", func() error {
		return take(t, s, rotation.StepRequest{Name: rotation.Encryption, Step: rotation.Finish})
	})
	readable()
	config, err := os.ReadFile(filepath.Join(dir, "pki", "encryption.yaml"))
	if err != nil || strings.Contains(string(config), "first") || !strings.Contains(string(config), fresh) {
		t.Errorf("the configuration has other keys than %s: %v", fresh, err)
	}
	again()
	if key() != fresh {
		t.Errorf("the Secret is encrypted with %q", key())
	}
}

// TestTheLastStepEncryptsWhatIsLeft takes the last step before objects are encrypted again.
func TestTheLastStepEncryptsWhatIsLeft(t *testing.T) {
	s, _ := startServer(t, encryptedFolder(t), nil)
	if _, err := client.Create(t.Context(), s.own(), &corev1.Secret{ObjectMeta: meta("default", "rum"), StringData: map[string]string{"bottles": "15"}}); err != nil {
		t.Fatal(err)
	}
	for _, step := range []rotation.Step{rotation.Start, rotation.Switch} {
		eventually(t, string(step), func() error { return take(t, s, rotation.StepRequest{Name: rotation.Encryption, Step: step}) })
	}
	// The last step itself encrypts the remaining values.
	eventually(t, "the last step", func() error {
		return take(t, s, rotation.StepRequest{Name: rotation.Encryption, Step: rotation.Finish})
	})
	have, err := client.Get[*corev1.Secret](t.Context(), s.own(), "default", "rum")
	if err != nil || string(have.Data["bottles"]) != "15" {
		t.Errorf("the Secret cannot be read: %v", err)
	}
}

func TestAFileOfAFlagIsLeftAlone(t *testing.T) {
	cfg := config.Default()
	cfg.DataDir = t.TempDir()
	keys := managedKeys{&Server{cfg: &cfg}}
	if _, err := keys.Configuration(); err == nil || !strings.Contains(err.Error(), "nothing is encrypted") {
		t.Errorf("without encryption: %v", err)
	}
	own := filepath.Join(t.TempDir(), "mine.yaml")
	cfg.APIServer.EncryptionConfig = own
	if _, err := keys.Configuration(); err == nil || !strings.Contains(err.Error(), own) || !strings.Contains(err.Error(), filepath.Join("pki", "encryption.yaml")) {
		t.Errorf("with a flag: %v", err)
	}
	if err := keys.Use(t.Context(), []byte("x")); err == nil {
		t.Error("the cluster's keys were taken although a flag names a file")
	}
	if _, err := os.Stat(filepath.Join(cfg.DataDir, "pki")); err == nil {
		t.Error("a file was written")
	}
}
