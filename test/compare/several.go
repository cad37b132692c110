package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// memberCount is the number of members of the systems with several servers.
const memberCount = 3

// member is one machine of a control plane of three: for knarr one process, for upstream an etcd, a
// kube-apiserver, a kube-controller-manager and a kube-scheduler, which use the API server beside
// them.
type member struct {
	name       string // the host name of its processes
	kubeconfig string // leads to this member
	metrics    string // URL of etcd's metrics, or "" for those of the API server
	processes  []*process
}

// launch starts a process of the member, which has its own host name.
func (m *member) launch(dir, name, path string, args ...string) error {
	p := &process{name: m.name + "-" + name, log: filepath.Join(dir, m.name+"-"+name+".log")}
	renamed := []string{"--uts", "sh", "-c", `hostname "$1"; shift; exec "$@"`, "sh", m.name, path}
	if err := p.launch("/usr/bin/unshare", nil, append(renamed, args...)); err != nil {
		return err
	}
	m.processes = append(m.processes, p)
	return nil
}

// end sends a signal to all processes of the member at once, as the end of its machine would, and
// waits for them.
func (m *member) end(signal syscall.Signal) {
	for _, p := range m.processes {
		_ = p.cmd.Process.Signal(signal)
	}
	for _, p := range m.processes {
		select {
		case <-p.done:
		case <-time.After(30 * time.Second):
			_ = p.cmd.Process.Kill()
			<-p.done
		}
	}
}

// back starts the member's processes again and waits until it is ready.
func (m *member) back(ctx context.Context) error {
	for _, p := range m.processes {
		if err := p.launch(p.cmd.Path, p.cmd.Env, p.cmd.Args[1:]); err != nil {
			return err
		}
	}
	return m.ready(ctx)
}

func (m *member) ready(ctx context.Context) error {
	if err := waitReady(ctx, m.kubeconfig, m.processes...); err != nil {
		return fmt.Errorf("%s: %w", m.name, err)
	}
	return nil
}

// orders reports whether the member's store is etcd's leader.
func (m *member) orders(ctx context.Context) (bool, error) {
	client, at := http.DefaultClient, m.metrics
	if at == "" {
		config, err := clientcmd.BuildConfigFromFlags("", m.kubeconfig)
		if err != nil {
			return false, err
		}
		if client, err = rest.HTTPClientFor(config); err != nil {
			return false, err
		}
		at = config.Host + "/metrics"
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return false, err
	}
	response, err := client.Do(request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "etcd_server_is_leader "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return v == 1, err
		}
	}
	return false, fmt.Errorf("%s: no metric etcd_server_is_leader", m.name)
}

// storeLeader returns the member whose store is etcd's leader.
func (c *cluster) storeLeader(ctx context.Context) (leader *member, err error) {
	err = until(ctx, 30*time.Second, "a leader of the store", func() bool {
		for _, m := range c.members {
			if leads, err := m.orders(ctx); err == nil && leads {
				leader = m
				return true
			}
		}
		return false
	})
	return leader, err
}

// componentLeader returns the member whose controllers act, as their Lease names it.
func (c *cluster) componentLeader(ctx context.Context) (leader *member, err error) {
	load, err := connect(c.kubeconfig)
	if err != nil {
		return nil, err
	}
	last := errors.New("no holder")
	err = until(ctx, 60*time.Second, "a leader of the controllers", func() bool {
		lease, err := load.set.CoordinationV1().Leases("kube-system").Get(ctx, "kube-controller-manager", metav1.GetOptions{})
		if err != nil || lease.Spec.HolderIdentity == nil {
			last = err
			return false
		}
		for _, m := range c.members {
			if strings.HasPrefix(*lease.Spec.HolderIdentity, m.name+"_") {
				leader = m
				return true
			}
		}
		last = fmt.Errorf("the holder is %q", *lease.Spec.HolderIdentity)
		return false
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, last)
	}
	return leader, nil
}

// gather makes a cluster of members, which are stopped together.
func gather(members []*member, began time.Time) *cluster {
	c := &cluster{kubeconfig: members[0].kubeconfig, members: members, began: began}
	c.stop = func() {
		for _, m := range members {
			for _, p := range m.processes {
				_ = p.cmd.Process.Signal(syscall.SIGTERM)
			}
		}
		for _, m := range members {
			m.end(syscall.SIGTERM)
		}
	}
	return c
}

// startSeveral starts a server and joins two more.
func (k *knarr) startSeveral(ctx context.Context, dir string) (c *cluster, err error) {
	var members []*member
	began := time.Now()
	defer func() {
		if err != nil && len(members) > 0 {
			gather(members, began).stop()
		}
	}()
	token := filepath.Join(dir, "token")
	first := ""
	for i := range memberCount {
		name := fmt.Sprintf("member-%d", i+1)
		data, listen := filepath.Join(dir, name), fmt.Sprintf("127.0.0.1:%d", freePort())
		m := &member{name: name, kubeconfig: filepath.Join(data, "kubeconfig")}
		members = append(members, m)
		args := []string{"server", "--data-dir", data, "--listen", listen, "--advertise-address", "127.0.0.1", "--peer-listen", fmt.Sprintf("127.0.0.1:%d", freePort())}
		if i == 0 {
			first = "https://" + listen
			args = append(args, "--pod-cidr", podRange, "--service-cidr", serviceRange)
		} else {
			args = append(args, "--join", first, "--token-file", token)
		}
		if err := m.launch(dir, "knarr", k.bin, args...); err != nil {
			return nil, err
		}
		if err := m.ready(ctx); err != nil {
			return nil, err
		}
		if i == 0 {
			if err := k.token(ctx, data, token); err != nil {
				return nil, err
			}
		}
	}
	c = gather(members, began)
	c.started = time.Since(began)
	return c, nil
}

// startSeveral starts three etcds, and beside each the other parts of a control plane.
func (u *upstream) startSeveral(ctx context.Context, dir string) (*cluster, error) {
	keys, err := makeKeys(dir)
	if err != nil {
		return nil, err
	}
	var members []*member
	var peers, stores []string
	var peerPorts, storePorts []int
	for i := range memberCount {
		members = append(members, &member{name: fmt.Sprintf("member-%d", i+1)})
		peerPorts, storePorts = append(peerPorts, freePort()), append(storePorts, freePort())
		peers = append(peers, fmt.Sprintf("member-%d=http://127.0.0.1:%d", i+1, peerPorts[i]))
		stores = append(stores, fmt.Sprintf("http://127.0.0.1:%d", storePorts[i]))
	}
	c := gather(members, time.Now())
	for i, m := range members {
		port := freePort()
		m.kubeconfig = filepath.Join(dir, m.name+".conf")
		m.metrics = stores[i] + "/metrics"
		server := fmt.Sprintf("https://127.0.0.1:%d", port)
		if err := keys.kubeconfig(m.kubeconfig, server, "admin"); err != nil {
			return nil, err
		}
		peer := fmt.Sprintf("http://127.0.0.1:%d", peerPorts[i])
		ordered := append([]string{stores[i]}, append(append([]string{}, stores[:i]...), stores[i+1:]...)...)
		for _, program := range [][]string{
			{"etcd", "--name", m.name, "--data-dir", filepath.Join(dir, m.name), "--listen-client-urls", stores[i], "--advertise-client-urls", stores[i],
				"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", strings.Join(peers, ","), "--log-level", "warn"},
			append([]string{"kube-apiserver", "--etcd-servers", strings.Join(ordered, ",")}, apiserverFlags(keys, port)...),
			append([]string{"kube-controller-manager", "--kubeconfig", m.kubeconfig}, controllerFlags(keys, dir)...),
			{"kube-scheduler", "--kubeconfig", m.kubeconfig, "--secure-port", "0", "--kube-api-qps", "5000", "--kube-api-burst", "5000"},
		} {
			if err := m.launch(dir, program[0], filepath.Join(u.bin, program[0]), program[1:]...); err != nil {
				c.stop()
				return nil, err
			}
		}
	}
	c.kubeconfig = members[0].kubeconfig
	for _, m := range members {
		if err := m.ready(ctx); err != nil {
			c.stop()
			return nil, err
		}
	}
	c.started = time.Since(c.began)
	return c, nil
}
