package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/knarr-project/knarr/internal/clusters"
)

// defaultServer is client-go's default if no kubeconfig names a server. Nothing of Kubernetes has
// listened there for years.
const defaultServer = "localhost:8080"

// kubectlCluster takes a leading --data-dir from kubectl's arguments; kubectl has no flag of that
// name. The value is a data folder or a name of `knarr ls`.
func kubectlCluster(args []string) (rest []string, dataDir string, err error) {
	if len(args) == 0 {
		return args, "", nil
	}
	if value, ok := strings.CutPrefix(args[0], "--data-dir="); ok {
		return args[1:], value, nil
	}
	if args[0] != "--data-dir" {
		return args, "", nil
	}
	if len(args) == 1 {
		return nil, "", errors.New("kubectl: --data-dir needs a value: a data folder, or a name of `knarr ls`")
	}
	return args[2:], args[1], nil
}

// useCluster points kubectl to a cluster of this machine: the one of --data-dir. Without
// --data-dir, KUBECONFIG and ~/.kube/config, it is the default data folder's cluster, or the only
// running one.
func useCluster(dataDir string) error {
	if dataDir != "" {
		r, err := targetCluster(nil, dataDir, true)
		if err != nil {
			return err
		}
		if !r.HasServer() {
			return fmt.Errorf("%s has no kubeconfig: its server is %s", r, orDash(r.Join))
		}
		if _, err := os.ReadFile(r.Kubeconfig()); errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("only root may read the kubeconfig of %s, %s: try sudo", r.Name, r.Kubeconfig())
		}
		return os.Setenv(clientcmd.RecommendedConfigPathEnvVar, r.Kubeconfig())
	}
	if os.Getenv(clientcmd.RecommendedConfigPathEnvVar) != "" {
		return nil
	}
	if _, err := os.Stat(clientcmd.RecommendedHomeFile); err == nil {
		return nil
	}
	own := filepath.Join(clusters.DefaultDataDir, "kubeconfig")
	if r := onlyOne(clusters.Here(), clusters.DefaultDataDir); r != nil && r.HasServer() {
		own = r.Kubeconfig()
	}
	if f, err := os.Open(own); err == nil {
		_ = f.Close()
		return os.Setenv(clientcmd.RecommendedConfigPathEnvVar, own)
	}
	return nil
}

// explainer explains failed connections of kubectl that have to do with knarr: no cluster is
// configured, or a cluster of this machine does not run. It only sees failed connections, so
// commands without a server are not affected.
type explainer struct {
	here    clusters.Registry
	command string // the kubectl command
	server  string // value of --server
	stop    func(message string)
	reached atomic.Bool
	servers chooser
}

// wrap is kubectl's hook for the configuration of its clients.
func (e *explainer) wrap(c *rest.Config) *rest.Config {
	host, ca := c.Host, caOf(c)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(e.servers.direct(e, next, host, ca, request))
			if err == nil {
				e.reached.Store(true)
				return response, nil
			}
			text := ""
			if !e.reached.Load() {
				text = e.explain(host, ca, err)
			}
			switch {
			case text == "" || e.command == "proxy" || strings.HasPrefix(e.command, "__complete"):
			case e.command == "version": // it has output even without a server
				err = errors.New(text)
			default:
				e.stop(text)
			}
			return response, err
		})
	})
	return c
}

type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

func caOf(c *rest.Config) []byte {
	if len(c.CAData) > 0 || c.CAFile == "" {
		return c.CAData
	}
	data, _ := os.ReadFile(c.CAFile)
	return data
}

// explain returns the explanation of a failed connection, or "" if it has nothing to do with knarr.
func (e *explainer) explain(host string, ca []byte, err error) string {
	var dial *net.OpError
	refused := errors.As(err, &dial) && dial.Op == "dial"
	if e.server == "" && strings.TrimPrefix(host, "http://") == defaultServer {
		if !refused {
			return ""
		}
		return e.noCluster()
	}
	r := e.owner(host, ca)
	if r == nil || !refused && r.Alive() {
		return ""
	}
	switch r.State() {
	case clusters.Starting:
		return fmt.Sprintf("the cluster %s is starting since %s: try again", r.Name, moment(r.Started))
	case clusters.Running:
		return fmt.Sprintf("the cluster %s runs (process %d), and does not listen at %s: `knarr status %s` shows how it is", r.Name, r.PID, host, r.Name)
	}
	return fmt.Sprintf("the cluster %s does not run; it %s. Start it with `%s`", r.Name, pastState(r), startCommand(r))
}

// owner returns the cluster of this machine to which a kubeconfig refers, by its address and its
// CA.
func (e *explainer) owner(host string, ca []byte) *clusters.Record {
	known := e.here.List()
	if file := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); file != "" {
		if r, err := clusters.Load(filepath.Dir(file)); err == nil {
			known = append(known, e.here.Named(r))
		}
	}
	for _, r := range known {
		if !r.HasServer() || r.URL() != host {
			continue
		}
		own, err := os.ReadFile(filepath.Join(r.DataDir, "pki", "ca.crt"))
		if err == nil && bytes.Equal(bytes.TrimSpace(own), bytes.TrimSpace(ca)) || errors.Is(err, fs.ErrPermission) {
			return r
		}
	}
	return nil
}

// noCluster is the message for a kubectl without a configured server.
func (e *explainer) noCluster() string {
	own := filepath.Join(e.here.DefaultDataDir, "kubeconfig")
	if named := os.Getenv(clientcmd.RecommendedConfigPathEnvVar); named != "" {
		if _, err := os.Stat(named); errors.Is(err, fs.ErrNotExist) && !strings.Contains(named, ":") {
			return fmt.Sprintf("KUBECONFIG names %s, and there is no such file", named)
		}
		return fmt.Sprintf("KUBECONFIG (%s) names no server", named)
	}
	if _, err := os.Stat(clientcmd.RecommendedHomeFile); err == nil {
		text := clientcmd.RecommendedHomeFile + " names no server, and it is used before this machine's cluster"
		if _, err := os.Stat(own); err == nil {
			text += ": --kubeconfig " + own + " leads there"
		}
		return text
	}
	if f, err := os.Open(own); err == nil {
		_ = f.Close()
	} else if errors.Is(err, fs.ErrPermission) {
		return fmt.Sprintf("only root may read the kubeconfig of this machine's cluster, %s: try sudo", own)
	}
	known := e.here.List()
	if len(known) == 0 {
		return "no cluster is here: `knarr up` starts one; --kubeconfig FILE or KUBECONFIG points to another one"
	}
	var names []string
	for _, r := range known {
		names = append(names, fmt.Sprintf("%s (%s)", r.Name, r.State()))
	}
	return fmt.Sprintf("no cluster is in %s; `knarr ls` knows %s: `knarr kubectl --data-dir NAME ...` takes one of them, `knarr up` starts one there",
		e.here.DefaultDataDir, strings.Join(names, ", "))
}
