package credentials

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfig "k8s.io/kubelet/config/v1"
	api "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
)

// Bounds of a plugin.
const (
	runTime    = time.Minute
	outputSize = 1 << 20
	errorSize  = 4 << 10
)

const (
	requestKind  = "CredentialProviderRequest"
	responseKind = "CredentialProviderResponse"
)

// plugin is a program with its settings.
type plugin struct {
	kubeletconfig.CredentialProvider
	path string
	time time.Duration
}

// find checks that the program exists.
func find(dir string, c kubeletconfig.CredentialProvider) (*plugin, error) {
	p := &plugin{c, filepath.Join(dir, c.Name), runTime}
	info, err := os.Stat(p.path)
	if err != nil {
		return nil, fmt.Errorf("provider %s: %w", c.Name, err)
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return nil, fmt.Errorf("provider %s: %s is not a program", c.Name, p.path)
	}
	return p, nil
}

// matches reports whether the plugin is for an image.
func (p *plugin) matches(image string) bool {
	for _, pattern := range p.MatchImages {
		if Matches(pattern, image) {
			return true
		}
	}
	return false
}

// ask runs the plugin. said is the plugin's standard error. It may have secrets, and users of the
// pod's namespace can read err, so err is without it.
func (p *plugin) ask(ctx context.Context, r api.CredentialProviderRequest) (answer *api.CredentialProviderResponse, said string, err error) {
	r.TypeMeta = metav1.TypeMeta{APIVersion: p.APIVersion, Kind: requestKind}
	input, err := json.Marshal(r)
	if err != nil {
		return nil, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, p.time)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.path, p.Args...)
	cmd.Env = os.Environ()
	for _, e := range p.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	out, messages := &bounded{most: outputSize}, &bounded{most: errorSize}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), out, messages
	// A plugin ends with all that it has started.
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	said = strings.TrimSpace(string(messages.kept))
	switch {
	case ctx.Err() != nil && err != nil:
		return nil, said, fmt.Errorf("provider %s did not answer within %s", p.Name, p.time)
	case err != nil:
		return nil, said, fmt.Errorf("provider %s: %w; the node's log has its messages", p.Name, err)
	case out.over:
		return nil, said, fmt.Errorf("provider %s: its answer has more than %d bytes", p.Name, outputSize)
	}
	answer, err = p.parse(out.kept)
	return answer, said, err
}

func (p *plugin) parse(answer []byte) (*api.CredentialProviderResponse, error) {
	r := &api.CredentialProviderResponse{}
	if err := json.Unmarshal(answer, r); err != nil {
		return nil, fmt.Errorf("provider %s: its answer is not JSON of %s", p.Name, responseKind)
	}
	if r.APIVersion != p.APIVersion || r.Kind != responseKind {
		return nil, fmt.Errorf("provider %s: its answer is %q of %q: wanted %s of %s", p.Name, r.Kind, r.APIVersion, responseKind, p.APIVersion)
	}
	switch r.CacheKeyType {
	case api.ImagePluginCacheKeyType, api.RegistryPluginCacheKeyType, api.GlobalPluginCacheKeyType:
		return r, nil
	}
	return nil, fmt.Errorf("provider %s: cacheKeyType %q is not usable: Image, Registry or Global", p.Name, r.CacheKeyType)
}

// bounded keeps the first bytes of an output. It goes on reading, so that the writer is not
// blocked.
type bounded struct {
	kept []byte // not a bytes.Buffer, whose ReadFrom has no bound
	most int
	over bool
}

func (b *bounded) Write(p []byte) (int, error) {
	left := min(b.most-len(b.kept), len(p))
	b.kept = append(b.kept, p[:left]...)
	b.over = b.over || left < len(p)
	return len(p), nil
}
