package cli

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/knarr-project/knarr/internal/auth/rotation"
	"github.com/knarr-project/knarr/internal/config"
)

func rotateEncryptionKeyCommand() *cobra.Command {
	s, o := newSettings(), rotateOptions{name: rotation.Encryption}
	cmd := &cobra.Command{
		Use: "rotate-encryption-key", Short: "Replace the key that encrypts Secrets in the store", Args: cobra.NoArgs,
		Long: "Makes a new key, waits until all servers read with it, lets it write, encrypts all objects again, and removes\n" +
			"the old key. Nothing is restarted. An interrupted command continues when it is run again. The configuration\n" +
			"must be DATA-DIR/pki/encryption.yaml; knarr does not change a file of --encryption-provider-config.",
		Example: "sudo knarr certificates rotate-encryption-key\nsudo knarr certificates rotate-encryption-key --status",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := completeForServer(s, cmd); err != nil {
				return err
			}
			return o.encrypt(cmd, &s.Config)
		},
	}
	s.takeFlags(cmd, "data-dir")
	f := cmd.Flags()
	f.BoolVar(&o.status, "status", false, "show the phase, and the servers that lag")
	f.BoolVar(&o.abort, "abort", false, "forget the new key, before it writes")
	f.BoolVar(&o.force, "force", false, "do not wait for servers that lag; leave objects that no key decrypts")
	f.DurationVar(&o.timeout, "timeout", time.Hour, "how long to wait for servers, and to encrypt")
	cmd.MarkFlagsMutuallyExclusive("status", "abort")
	onlyOnCommandLine(cmd, "status", "abort", "force", "timeout")
	return cmd
}

var encryptionWords = map[rotation.Phase]string{
	rotation.Settled:  "no rotation is under way",
	rotation.Trusting: "the old key writes, both are read",
	rotation.Signing:  "the new key writes, both are read; objects are encrypted again",
}

func (o *rotateOptions) encrypt(cmd *cobra.Command, cfg *config.Config) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), o.timeout)
	defer cancel()
	r := &rotating{rotateOptions: o, cmd: cmd, cfg: cfg, words: encryptionWords}
	var err error
	switch {
	case o.status:
		err = r.show(ctx)
	case o.abort:
		if err = r.step(ctx, rotation.Abort); err == nil {
			r.say("the new key is forgotten")
		}
	default:
		err = r.reencrypt(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", cmd.Name(), err)
	}
	return nil
}

// reencrypt takes all steps of a rotation of the encryption key.
func (r *rotating) reencrypt(ctx context.Context) error {
	var progress rewriting
	return r.untilDone(ctx, "servers", func(ctx context.Context) (done, more bool, err error) {
		done, err = r.encryptOnce(ctx, &progress)
		return done, progress.next != "", err
	})
}

// rewriting is the progress of encrypting objects again.
type rewriting struct {
	next          string
	seen, changed int
	done          bool
}

// encryptOnce takes the next step, if no server lags.
func (r *rotating) encryptOnce(ctx context.Context, p *rewriting) (done bool, err error) {
	s, err := r.current(ctx)
	if err != nil {
		return false, err
	}
	waits := waiting(s, true)
	switch s.Phase {
	case rotation.Settled:
		if p.done {
			return true, nil // the answer to the last step was lost
		}
		r.say("making a new key")
		return false, r.step(ctx, rotation.Start)
	case rotation.Trusting:
		if waits != "" && !r.force {
			r.say("waiting until all servers read with it: %s", waits)
			return false, nil
		}
		r.say("all servers read with it; it writes from now on")
		return false, r.step(ctx, rotation.Switch)
	}
	if waits != "" && !r.force {
		r.say("waiting until all servers write with it: %s", waits)
		return false, nil
	}
	if !p.done {
		return false, r.rewrite(ctx, p)
	}
	if err := r.step(ctx, rotation.Finish); err != nil {
		return false, err
	}
	r.say("%d objects are encrypted with the new key, %d of them again; the old key is removed", p.seen, p.changed)
	return true, nil
}

func (r *rotating) rewrite(ctx context.Context, p *rewriting) error {
	var answer rotation.RewriteAnswer
	request := rotation.RewriteRequest{From: p.next, Force: r.force}
	if err := callServer(ctx, r.cfg, http.MethodPost, rotation.RewritePath, request, &answer); err != nil {
		return err
	}
	p.next, p.seen, p.changed, p.done = answer.Next, p.seen+answer.Seen, p.changed+answer.Changed, answer.Next == ""
	r.say("%d objects are encrypted with the new key", p.seen)
	if len(answer.Broken) > 0 {
		r.say("cannot be decrypted with any key: %s", strings.Join(answer.Broken, ", "))
	}
	return nil
}
