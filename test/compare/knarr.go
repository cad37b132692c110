package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// knarr is our side: one process, the node in it as well.
type knarr struct{ bin string }

func (k *knarr) name() string { return "knarr" }

func (k *knarr) size() (int64, error) {
	info, err := os.Stat(k.bin)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (k *knarr) flags(dir string) []string {
	return []string{
		"--data-dir", filepath.Join(dir, "data"), "--listen", fmt.Sprintf("127.0.0.1:%d", freePort()),
		"--pod-cidr", "10.46.0.0/16", "--service-cidr", "10.47.0.0/16",
	}
}

func (k *knarr) startControl(ctx context.Context, dir string) (*cluster, error) {
	flags := k.flags(dir)
	return k.start(ctx, dir, append([]string{"server"}, flags...), nil)
}

// startNode begins again with `knarr up`, which is how a node and a control plane on one machine are run.
func (k *knarr) startNode(ctx context.Context, c *cluster) error {
	c.stop()
	dir := filepath.Join(c.dir, "up")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root := fmt.Sprintf("/knarr-compare-%d", os.Getpid())
	flags := append(k.flags(dir), "--node-name", "compare", "--cgroup-root", root, "--kubelet-listen", fmt.Sprintf("127.0.0.1:%d", freePort()))
	again, err := k.start(ctx, dir, append([]string{"up"}, flags...), func() {
		purge := exec.Command(k.bin, "purge", "--yes", "--data-dir", filepath.Join(dir, "data"), "--cgroup-root", root)
		if out, err := purge.CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "purge: %v\n%s", err, out)
		}
	})
	if err != nil {
		return err
	}
	*c = *again
	return waitNode(ctx, c.kubeconfig)
}

func (k *knarr) start(ctx context.Context, dir string, args []string, after func()) (*cluster, error) {
	began := time.Now()
	p, err := start(dir, "knarr", k.bin, nil, args...)
	if err != nil {
		return nil, err
	}
	c := &cluster{kubeconfig: filepath.Join(dir, "data", "kubeconfig"), dir: dir, control: []*process{p}}
	stopped := false
	c.stop = func() {
		if stopped {
			return
		}
		stopped = true
		p.stop()
		if after != nil {
			after()
		}
	}
	if err := waitReady(ctx, c.kubeconfig, p); err != nil {
		c.stop()
		return nil, err
	}
	c.started = time.Since(began)
	return c, nil
}

// waitReady polls /readyz until it says ok, as soon as there is a kubeconfig.
func waitReady(ctx context.Context, kubeconfig string, ps ...*process) error {
	var client *http.Client
	var host string
	return until(ctx, 60*time.Second, "/readyz", func() bool {
		for _, p := range ps {
			select {
			case <-p.done:
				return false
			default:
			}
		}
		if client == nil {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return false
			}
			if client, err = rest.HTTPClientFor(config); err != nil {
				client = nil
				return false
			}
			host = config.Host
		}
		resp, err := client.Get(host + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}
