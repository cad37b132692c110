package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/knarr-project/knarr/internal/auth/rotation"
	"github.com/knarr-project/knarr/internal/config"
)

// rotateOptions are the flags of the commands that replace a CA or the keys of tokens.
type rotateOptions struct {
	name                         string
	status, finish, abort, force bool
	timeout                      time.Duration
}

func rotateCACommand() *cobra.Command {
	s, o := newSettings(), rotateOptions{}
	cmd := &cobra.Command{
		Use: "rotate-ca", Short: "Replace an authority while the old and the new one are trusted", Args: cobra.NoArgs,
		Long: "Makes a new authority, waits until all servers and nodes trust it, and lets it sign: all get new certificates.\n" +
			"The old one stays trusted until --finish. Nothing is restarted. An interrupted command continues when it is\n" +
			"run again. Programs that read the CA only at their start must be restarted before --finish.",
		Example: "sudo knarr certificates rotate-ca\nsudo knarr certificates rotate-ca --status\nsudo knarr certificates rotate-ca --finish",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := completeForServer(s, cmd); err != nil {
				return err
			}
			return o.run(cmd, &s.Config)
		},
	}
	s.takeFlags(cmd, "data-dir")
	cmd.Flags().StringVar(&o.name, "ca", rotation.Kubernetes, "`NAME` of the authority: kubernetes, front-proxy or etcd")
	config.Enumerate(cmd.Flags().Lookup("ca"), rotation.Kubernetes, rotation.FrontProxy, rotation.Etcd)
	o.addFlags(cmd)
	onlyOnCommandLine(cmd, "ca")
	return cmd
}

func rotateSAKeysCommand() *cobra.Command {
	s, o := newSettings(), rotateOptions{name: rotation.ServiceAccounts}
	cmd := &cobra.Command{
		Use: "rotate-sa-keys", Short: "Replace the key that signs service account tokens", Args: cobra.NoArgs,
		Long: "Makes a new key, waits until all servers accept its tokens, and lets it sign. Tokens of the old key stay valid\n" +
			"until --finish. Nodes give pods new tokens within an hour; tokens in Secrets are signed again at once.",
		Example: "sudo knarr certificates rotate-sa-keys\nsudo knarr certificates rotate-sa-keys --finish",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := completeForServer(s, cmd); err != nil {
				return err
			}
			return o.run(cmd, &s.Config)
		},
	}
	s.takeFlags(cmd, "data-dir")
	o.addFlags(cmd)
	return cmd
}

func (o *rotateOptions) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&o.status, "status", false, "show the phase, and the servers and nodes that lag")
	f.BoolVar(&o.finish, "finish", false, "end the trust in the old one")
	f.BoolVar(&o.abort, "abort", false, "forget the new one, before it signs")
	f.BoolVar(&o.force, "force", false, "do not wait for servers and nodes that lag; they may be cut off")
	f.DurationVar(&o.timeout, "timeout", 10*time.Minute, "how long to wait for servers and nodes")
	cmd.MarkFlagsMutuallyExclusive("status", "finish", "abort")
	onlyOnCommandLine(cmd, "status", "finish", "abort", "force", "timeout")
}

func (o *rotateOptions) run(cmd *cobra.Command, cfg *config.Config) error {
	ctx, cancel := context.WithTimeout(cmd.Context(), o.timeout)
	defer cancel()
	r := &rotating{rotateOptions: o, cmd: cmd, cfg: cfg, words: phaseWords}
	var err error
	switch {
	case o.status:
		err = r.show(ctx)
	case o.finish:
		if err = r.step(ctx, rotation.Finish); err == nil {
			r.say("the old one is not trusted any more")
		}
	case o.abort:
		if err = r.step(ctx, rotation.Abort); err == nil {
			r.say("the new one is forgotten")
		}
	default:
		err = r.proceed(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", cmd.Name(), err)
	}
	return nil
}

// rotating is one run of a command.
type rotating struct {
	*rotateOptions
	cmd  *cobra.Command
	cfg  *config.Config
	said string
	// words describe the phases.
	words map[rotation.Phase]string
}

// say prints a line unless it was the last one.
func (r *rotating) say(format string, args ...any) {
	if line := fmt.Sprintf(format, args...); line != r.said {
		fmt.Fprintln(r.cmd.OutOrStdout(), line)
		r.said = line
	}
}

func (r *rotating) current(ctx context.Context) (*rotation.Status, error) {
	var all rotation.Certificates
	if err := callServer(ctx, r.cfg, http.MethodGet, rotation.CertificatesPath, nil, &all); err != nil {
		return nil, err
	}
	for _, s := range all.Rotations {
		if s.Name == r.name {
			return &s, nil
		}
	}
	return &rotation.Status{Name: r.name}, nil
}

func (r *rotating) step(ctx context.Context, step rotation.Step) error {
	return callServer(ctx, r.cfg, http.MethodPost, rotation.StepPath, rotation.StepRequest{Name: r.name, Step: step, Force: r.force}, &rotation.Status{})
}

var phaseWords = map[rotation.Phase]string{
	rotation.Settled:  "no rotation is under way",
	rotation.Trusting: "the old one signs, both are trusted",
	rotation.Signing:  "the new one signs, both are trusted",
}

func (r *rotating) show(ctx context.Context) error {
	s, err := r.current(ctx)
	if err != nil {
		return err
	}
	r.say("%s: %s", s.Name, r.words[s.Phase])
	for _, l := range s.Lagging {
		fmt.Fprintf(r.cmd.OutOrStdout(), "  %s: %s\n", l.Party, l.Reason)
	}
	return nil
}

// pollEvery is the interval of looking for parties that lag.
const pollEvery = 2 * time.Second

// proceed takes steps until the new one signs everywhere.
func (r *rotating) proceed(ctx context.Context) error {
	return r.untilDone(ctx, "servers or nodes", func(ctx context.Context) (done, more bool, err error) {
		done, err = r.advance(ctx)
		return done, false, err
	})
}

// untilDone takes steps until one is the last. A server that is restarted meanwhile delays it. A
// step that reports more to do is repeated at once. parties names the servers and nodes that it
// waits for.
func (r *rotating) untilDone(ctx context.Context, parties string, step func(context.Context) (done, more bool, err error)) error {
	for {
		done, more, err := step(ctx)
		var answered answeredError
		switch {
		case done || errors.As(err, &answered) && answered.code < http.StatusInternalServerError:
			return err
		case err == nil && more:
			continue
		case err != nil && ctx.Err() == nil:
			r.say("the server does not answer; trying again: %v", err)
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = fmt.Errorf("%s lag", parties)
			}
			return fmt.Errorf("%w; run the command again to continue, with --force to leave them behind", err)
		case <-time.After(pollEvery):
		}
	}
}

// advance takes the next step if no party lags.
func (r *rotating) advance(ctx context.Context) (done bool, err error) {
	s, err := r.current(ctx)
	if err != nil {
		return false, err
	}
	switch s.Phase {
	case rotation.Settled:
		r.say("making a new one")
		return false, r.step(ctx, rotation.Start)
	case rotation.Trusting:
		if waits := waiting(s, true); waits != "" && !r.force {
			r.say("waiting until all trust it: %s", waits)
			return false, nil
		}
		r.say("all trust it; it signs from now on")
		return false, r.step(ctx, rotation.Switch)
	}
	if waits := waiting(s, false); waits != "" && !r.force {
		r.say("waiting until all have certificates of it: %s", waits)
		return false, nil
	}
	if r.name == rotation.ServiceAccounts {
		r.say("the new key signs; tokens of the old one stay valid until `knarr certificates %s --finish`", r.again())
	} else {
		r.say("the new one signs, and the old one is still trusted. When programs that know only the old one are\nrestarted, run `knarr certificates %s --finish`.", r.again())
	}
	for _, l := range s.Lagging {
		r.say("  %s: %s", l.Party, l.Reason)
	}
	return true, nil
}

// again returns the command's name with its authority.
func (r *rotating) again() string {
	if r.cmd.Flags().Changed("ca") {
		return r.cmd.Name() + " --ca " + r.name
	}
	return r.cmd.Name()
}

// waiting names the parties that lag; unknown includes those for which waiting does not help.
func waiting(s *rotation.Status, unknown bool) string {
	var out []string
	for _, l := range s.Lagging {
		if !l.Unknown || unknown {
			out = append(out, l.Party+" ("+l.Reason+")")
		}
	}
	return strings.Join(out, "; ")
}
