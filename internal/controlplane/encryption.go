package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/knarr-project/knarr/internal/apiserver/encryption"
	"github.com/knarr-project/knarr/internal/auth/rotation"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/durable"
	"github.com/knarr-project/knarr/internal/member"
)

// managedEncryption is the file of the encryption configuration that knarr itself changes.
func managedEncryption(cfg *config.Config) string { return cfg.Path("pki", member.EncryptionFile) }

// AdoptEncryption makes the managed file the encryption configuration unless a flag names another.
func AdoptEncryption(cfg *config.Config) error {
	if cfg.APIServer.EncryptionConfig != "" {
		return nil
	}
	_, err := os.Stat(managedEncryption(cfg))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	cfg.APIServer.EncryptionConfig = managedEncryption(cfg)
	return err
}

// managedKeys is the encryption of this server for the rotation of its keys.
type managedKeys struct{ s *Server }

// Configuration implements rotation.EncryptionKeys.
func (k managedKeys) Configuration() ([]byte, error) {
	file := managedEncryption(k.s.cfg)
	switch k.s.cfg.APIServer.EncryptionConfig {
	case "":
		return nil, fmt.Errorf("nothing is encrypted: to begin, write the configuration to %s and start the server again", file)
	case file:
		return os.ReadFile(file)
	}
	return nil, fmt.Errorf("knarr does not change the file of --encryption-provider-config, %s: to let it, copy the file to %s on each server, "+
		"leave the flag out and start the server again; or change the file by hand", k.s.cfg.APIServer.EncryptionConfig, file)
}

// Use implements rotation.EncryptionKeys.
func (k managedKeys) Use(ctx context.Context, config []byte) error {
	file := managedEncryption(k.s.cfg)
	if own := k.s.cfg.APIServer.EncryptionConfig; own != "" && own != file {
		_, err := k.Configuration()
		return err
	}
	if err := durable.WriteFile(file, config); err != nil {
		return err
	}
	sealed, ok := k.s.db.(*encryption.Store)
	if !ok {
		return fmt.Errorf("this server had no encryption keys, and has now got the cluster's in %s: start it again", file)
	}
	return sealed.Use(ctx, config)
}

// rewriteTime is how long an answer of RewritePath works, so that the client sees progress.
const rewriteTime = 5 * time.Second

// rewrite encrypts values again from a cursor on, if all servers write with the new key.
func (s *Server) rewrite(ctx context.Context, in *rotation.RewriteRequest) (*rotation.RewriteAnswer, error) {
	status, err := s.statusOf(ctx, rotation.Encryption, nil)
	switch {
	case err != nil:
		return nil, err
	case status.Phase != rotation.Signing:
		return nil, refused{fmt.Errorf("encryption: objects are encrypted again in phase %q, but the phase is %q", rotation.Signing, status.Phase)}
	case len(status.Lagging) > 0 && !in.Force:
		return nil, refused{fmt.Errorf("encryption: servers still write with the old key: %s", parties(status.Lagging))}
	}
	return s.rewriteFrom(ctx, in.From, time.Now().Add(rewriteTime))
}

// rewriteFrom encrypts values again. A cursor is the number of the store and the key: PLACE:KEY.
func (s *Server) rewriteFrom(ctx context.Context, cursor string, until time.Time) (*rotation.RewriteAnswer, error) {
	stores := []*encryption.Store{}
	if sealed, ok := s.db.(*encryption.Store); ok {
		stores = append(stores, sealed)
	}
	for _, place := range s.places {
		if sealed, ok := place.Store.(*encryption.Store); ok {
			stores = append(stores, sealed)
		}
	}
	place, key := 0, ""
	if cursor != "" {
		number, rest, ok := strings.Cut(cursor, ":")
		at, err := strconv.Atoi(number)
		if !ok || err != nil || at < 0 || at >= len(stores) {
			return nil, refused{fmt.Errorf("from: %q is not a cursor of an earlier answer", cursor)}
		}
		place, key = at, rest
	}
	out := &rotation.RewriteAnswer{}
	for ; place < len(stores); place++ {
		done, err := stores[place].Rewrite(ctx, key, until)
		if err != nil {
			return nil, err
		}
		out.Seen += done.Seen
		out.Changed += done.Changed
		out.Broken = append(out.Broken, done.Broken...)
		key = ""
		switch {
		case done.Next != "":
			out.Next = fmt.Sprintf("%d:%s", place, done.Next)
			return out, nil
		case place+1 < len(stores) && !time.Now().Before(until):
			out.Next = fmt.Sprintf("%d:", place+1)
			return out, nil
		}
	}
	return out, nil
}

// finishEncryption refuses to drop the old key while values need it.
func (s *Server) finishEncryption(ctx context.Context, force bool) error {
	for cursor := ""; ; {
		answer, err := s.rewriteFrom(ctx, cursor, time.Now().Add(rewriteTime))
		switch {
		case err != nil:
			return err
		case len(answer.Broken) > 0 && !force:
			return refused{fmt.Errorf("encryption: the old key stays, because these values cannot be decrypted with any key: %s; delete them, or force the step", strings.Join(answer.Broken, ", "))}
		case answer.Next == "":
			return nil
		}
		cursor = answer.Next
	}
}
