package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// knarr is our side: one process, including the node.
type knarr struct {
	bin, cgroup string
	pods        string   // range of the pods' addresses; podRange by default
	extra       []string // further flags of a control plane
}

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
		"--data-dir", filepath.Join(dir, "data"), "--listen", fmt.Sprintf("127.0.0.1:%d", freePort()), "--advertise-address", address,
		"--pod-cidr", cmp.Or(k.pods, podRange), "--service-cidr", serviceRange,
	}
}

func (k *knarr) startControl(ctx context.Context, dir string) (*cluster, error) {
	return k.start(ctx, dir, slices.Concat([]string{"server"}, k.flags(dir), k.extra))
}

func (k *knarr) startNode(ctx context.Context, dir string) (*cluster, error) {
	flags := append(k.flags(dir), "--node-name", nodeName, "--cgroup-root", k.cgroup, "--kubelet-listen", fmt.Sprintf("127.0.0.1:%d", freePort()))
	return k.start(ctx, dir, append([]string{"up"}, flags...))
}

func (k *knarr) start(ctx context.Context, dir string, args []string) (*cluster, error) {
	began := time.Now()
	p, err := start(dir, "knarr", k.bin, nil, args...)
	if err != nil {
		return nil, err
	}
	c := &cluster{kubeconfig: filepath.Join(dir, "data", "kubeconfig"), control: []*process{p}, began: began, stop: p.stop}
	if err := waitReady(ctx, c.kubeconfig, p); err != nil {
		c.stop()
		return nil, err
	}
	c.started = time.Since(began)
	return c, nil
}

// token writes a join token for servers to a file.
func (k *knarr) token(ctx context.Context, data, file string) error {
	cmd := exec.CommandContext(ctx, k.bin, "token", "create", "--server", "--data-dir", data, "--advertise-address", "127.0.0.1")
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("token: %w", err)
	}
	return os.WriteFile(file, text, 0o600)
}
