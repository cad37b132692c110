package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// upstream is Kubernetes built from k8s.io/kubernetes, with etcd. For the node, it uses the
// containerd that knarr includes.
type upstream struct {
	bin, knarr, cgroup string
	controllers        []string // further flags of kube-controller-manager
}

// Addresses of Pods and Services on both sides, with room for a thousand nodes of 256 pods.
const (
	podRange     = "10.64.0.0/10"
	serviceRange = "10.47.0.0/16"
)

func (u *upstream) name() string { return "upstream" }

// parts lists the programs of the system, including containerd and its helpers.
var parts = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl", "containerd", "containerd-shim-runc-v2", "runc", "bridge"}

func (u *upstream) size() (sum int64, err error) {
	for _, name := range parts {
		info, err := os.Stat(filepath.Join(u.bin, name))
		if err != nil {
			return 0, err
		}
		sum += info.Size()
	}
	return sum, nil
}

func (u *upstream) startControl(ctx context.Context, dir string) (*cluster, error) {
	c, err := u.launchControl(dir)
	if err != nil {
		return nil, err
	}
	return c, u.ready(ctx, c)
}

func (u *upstream) ready(ctx context.Context, c *cluster) error {
	if err := waitReady(ctx, c.kubeconfig, c.control...); err != nil {
		c.stop()
		return err
	}
	c.started = time.Since(c.began)
	return nil
}

// launchControl starts the control plane's programs concurrently. It raises their client limits (20
// and 50 requests a second), which would be measured otherwise. Nodes without an agent must not be
// considered dead meanwhile.
func (u *upstream) launchControl(dir string) (c *cluster, err error) {
	keys, err := makeKeys(dir)
	if err != nil {
		return nil, err
	}
	c = &cluster{kubeconfig: filepath.Join(dir, "kubeconfig")}
	c.stop = func() {
		for i := len(c.control) - 1; i >= 0; i-- {
			c.control[i].stop()
		}
	}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	store, peer, port := freePort(), freePort(), freePort()
	server := fmt.Sprintf("https://127.0.0.1:%d", port)
	if err := keys.kubeconfig(c.kubeconfig, server, "admin"); err != nil {
		return nil, err
	}
	c.began = time.Now()
	launch := func(name string, args ...string) {
		if err != nil {
			return
		}
		var p *process
		if p, err = start(dir, name, filepath.Join(u.bin, name), nil, args...); err == nil {
			c.control = append(c.control, p)
		}
	}
	launch("etcd", "--data-dir", filepath.Join(dir, "etcd"),
		"--listen-client-urls", fmt.Sprintf("http://127.0.0.1:%d", store), "--advertise-client-urls", fmt.Sprintf("http://127.0.0.1:%d", store),
		"--listen-peer-urls", fmt.Sprintf("http://127.0.0.1:%d", peer), "--initial-advertise-peer-urls", fmt.Sprintf("http://127.0.0.1:%d", peer),
		"--initial-cluster", fmt.Sprintf("default=http://127.0.0.1:%d", peer), "--log-level", "warn")
	launch("kube-apiserver", append([]string{"--etcd-servers", fmt.Sprintf("http://127.0.0.1:%d", store)}, apiserverFlags(keys, port)...)...)
	launch("kube-controller-manager", append([]string{"--kubeconfig", c.kubeconfig, "--leader-elect=false"}, slices.Concat(controllerFlags(keys, dir), u.controllers)...)...)
	launch("kube-scheduler", "--kubeconfig", c.kubeconfig, "--secure-port", "0", "--leader-elect=false", "--kube-api-qps", "5000", "--kube-api-burst", "5000")
	return c, err
}

// apiserverFlags are the flags of a kube-apiserver at a port of loopback.
func apiserverFlags(keys *keys, port int) []string {
	return []string{"--secure-port", fmt.Sprint(port), "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1",
		"--service-cluster-ip-range", serviceRange, "--client-ca-file", keys.path("ca.crt"), "--tls-cert-file", keys.path("server.crt"), "--tls-private-key-file", keys.path("server.key"),
		"--service-account-issuer", "https://kubernetes.default.svc.cluster.local", "--service-account-key-file", keys.path("server.key"), "--service-account-signing-key-file", keys.path("server.key"),
		"--kubelet-client-certificate", keys.path("admin.crt"), "--kubelet-client-key", keys.path("admin.key"), "--authorization-mode", "Node,RBAC", "--endpoint-reconciler-type", "none"}
}

// controllerFlags are the flags of a kube-controller-manager.
func controllerFlags(keys *keys, dir string) []string {
	return []string{"--secure-port", "0", "--use-service-account-credentials",
		"--cluster-cidr", podRange, "--allocate-node-cidrs", "--root-ca-file", keys.path("ca.crt"), "--service-account-private-key-file", keys.path("server.key"),
		"--flex-volume-plugin-dir", filepath.Join(dir, "plugins"), "--node-monitor-grace-period", "10m", "--kube-api-qps", "5000", "--kube-api-burst", "5000"}
}

// startNode starts containerd first, with the image in it, so that neither counts as time of the
// start.
func (u *upstream) startNode(ctx context.Context, dir string) (*cluster, error) {
	containerd, socket, err := u.startRuntime(ctx, dir)
	if err != nil {
		return nil, err
	}
	c, err := u.launchControl(dir)
	if err != nil {
		containerd.stop()
		return nil, err
	}
	kubelet, err := u.startKubelet(kubelet{dir: dir, socket: socket, kubeconfig: c.kubeconfig, log: "kubelet", extra: `authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
`})
	if err != nil {
		c.stop()
		containerd.stop()
		return nil, err
	}
	control := c.stop
	c.stop = func() {
		kubelet.stop()
		control()
		containerd.stop()
	}
	return c, u.ready(ctx, c)
}

// kubelet configures upstream's kubelet.
type kubelet struct {
	dir, socket, kubeconfig string
	log                     string // name of its log
	extra                   string // further lines of its configuration
}

func (u *upstream) startKubelet(k kubelet) (*process, error) {
	config := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: %s
port: %d
healthzPort: 0
cgroupDriver: cgroupfs
cgroupRoot: %s
volumePluginDir: %s
failSwapOn: false
failCgroupV1: false
containerRuntimeEndpoint: unix://%s
clusterDNS: [10.47.0.10]
clusterDomain: cluster.local
resolvConf: ""
maxPods: 110
podLogsDir: %s
localStorageCapacityIsolation: false
`, address, freePort(), u.cgroup, filepath.Join(k.dir, "plugins"), k.socket, filepath.Join(k.dir, "logs")) + k.extra
	path := filepath.Join(k.dir, "kubelet.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return nil, err
	}
	if err := makeCgroup(u.cgroup); err != nil {
		return nil, err
	}
	return start(k.dir, k.log, filepath.Join(u.bin, "kubelet"), nil, "--config", path, "--kubeconfig", k.kubeconfig, "--hostname-override", nodeName,
		"--root-dir", filepath.Join(k.dir, "kubelet"), "--cert-dir", filepath.Join(k.dir, "kubelet", "pki"), "--node-ip", address)
}

// startRuntime starts a separate containerd with the bridge plugin as pod network. The binaries are
// those that knarr includes, unpacked by run.sh.
func (u *upstream) startRuntime(ctx context.Context, dir string) (p *process, socket string, err error) {
	state := filepath.Join(dir, "containerd")
	for _, d := range []string{"root", "state", "net.d"} {
		if err := os.MkdirAll(filepath.Join(state, d), 0o755); err != nil {
			return nil, "", err
		}
	}
	socket = filepath.Join(state, "c.sock")
	config := fmt.Sprintf(`version = 3
root = %q
state = %q
[grpc]
address = %q
[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = [%q]
conf_dir = %q
use_internal_loopback = true
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "registry.k8s.io/pause:3.10.2"
`, filepath.Join(state, "root"), filepath.Join(state, "state"), socket, u.bin, filepath.Join(state, "net.d"))
	if err := os.WriteFile(filepath.Join(state, "config.toml"), []byte(config), 0o600); err != nil {
		return nil, "", err
	}
	network := `{"cniVersion":"1.0.0","name":"compare","plugins":[{"type":"bridge","bridge":"knarr-cmp0","isGateway":true,"ipMasq":false,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.46.0.0/16"}]],"dataDir":"` + filepath.Join(state, "ipam") + `"}}]}`
	if err := os.WriteFile(filepath.Join(state, "net.d", "10-compare.conflist"), []byte(network), 0o600); err != nil {
		return nil, "", err
	}
	p, err = start(dir, "containerd", filepath.Join(u.bin, "containerd"), []string{"PATH=" + u.bin + ":" + os.Getenv("PATH")}, "--config", filepath.Join(state, "config.toml"))
	if err != nil {
		return nil, "", err
	}
	if err := until(ctx, 30*time.Second, "containerd", func() bool {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			return false
		}
		conn.Close()
		return true
	}); err != nil {
		p.stop()
		return nil, "", err
	}
	load := exec.Command(u.knarr, "image", "build", "--socket", socket, "--tag", "registry.k8s.io/pause:3.10.2", "--tag", "registry.k8s.io/pause:3.10", filepath.Join(u.bin, "pause"))
	if out, err := load.CombinedOutput(); err != nil {
		p.stop()
		return nil, "", fmt.Errorf("pause image: %w\n%s", err, out)
	}
	return p, socket, nil
}
