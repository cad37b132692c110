package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// upstream is Kubernetes as it is built from k8s.io/kubernetes, with etcd, and for the node with the containerd that knarr
// includes.
type upstream struct{ bin, knarr string }

func (u *upstream) name() string { return "upstream" }

// parts are the programs that make up the system, containerd and its helpers included.
var parts = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl", "containerd", "containerd-shim-runc-v2", "runc", "bridge"}

func (u *upstream) size() (sum int64, err error) {
	for _, name := range parts {
		info, err := os.Stat(filepath.Join(u.bin, name))
		if err != nil {
			continue // run.sh builds what a measurement needs; the sum is of what is there
		}
		sum += info.Size()
	}
	return sum, nil
}

func (u *upstream) startControl(ctx context.Context, dir string) (c *cluster, err error) {
	keys, err := makeKeys(dir)
	if err != nil {
		return nil, err
	}
	c = &cluster{dir: dir, kubeconfig: filepath.Join(dir, "kubeconfig")}
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
	began := time.Now()
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
	launch("kube-apiserver", "--etcd-servers", fmt.Sprintf("http://127.0.0.1:%d", store), "--secure-port", fmt.Sprint(port), "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1",
		"--service-cluster-ip-range", "10.47.0.0/16", "--client-ca-file", keys.path("ca.crt"), "--tls-cert-file", keys.path("server.crt"), "--tls-private-key-file", keys.path("server.key"),
		"--service-account-issuer", "https://kubernetes.default.svc.cluster.local", "--service-account-key-file", keys.path("server.key"), "--service-account-signing-key-file", keys.path("server.key"),
		"--kubelet-client-certificate", keys.path("admin.crt"), "--kubelet-client-key", keys.path("admin.key"), "--authorization-mode", "Node,RBAC", "--endpoint-reconciler-type", "none")
	launch("kube-controller-manager", "--kubeconfig", c.kubeconfig, "--secure-port", "0", "--leader-elect=false", "--use-service-account-credentials",
		"--cluster-cidr", "10.46.0.0/16", "--allocate-node-cidrs", "--root-ca-file", keys.path("ca.crt"), "--service-account-private-key-file", keys.path("server.key"))
	launch("kube-scheduler", "--kubeconfig", c.kubeconfig, "--secure-port", "0", "--leader-elect=false")
	if err != nil {
		return nil, err
	}
	if err = waitReady(ctx, c.kubeconfig, c.control...); err != nil {
		return nil, err
	}
	c.started = time.Since(began)
	return c, nil
}

func (u *upstream) startNode(ctx context.Context, c *cluster) error {
	runtimeStop, socket, p, err := u.startRuntime(ctx, c.dir)
	if err != nil {
		return err
	}
	root := fmt.Sprintf("/knarr-compare-upstream-%d", os.Getpid())
	config := fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
address: 127.0.0.1
port: %d
healthzPort: 0
cgroupDriver: cgroupfs
cgroupRoot: %s
failSwapOn: false
failCgroupV1: false
containerRuntimeEndpoint: unix://%s
clusterDNS: [10.47.0.10]
clusterDomain: cluster.local
resolvConf: ""
maxPods: 110
podLogsDir: %s
localStorageCapacityIsolation: false
`, freePort(), root, socket, filepath.Join(c.dir, "logs"))
	path := filepath.Join(c.dir, "kubelet.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return err
	}
	if err := makeCgroup(root); err != nil {
		return err
	}
	kubelet, err := start(c.dir, "kubelet", filepath.Join(u.bin, "kubelet"), nil, "--config", path, "--kubeconfig", c.kubeconfig, "--hostname-override", "compare",
		"--root-dir", filepath.Join(c.dir, "kubelet"), "--node-ip", "127.0.0.1")
	if err != nil {
		return err
	}
	c.node = []*process{p, kubelet}
	control := c.stop
	c.stop = func() {
		removePods(c.kubeconfig)
		kubelet.stop()
		runtimeStop()
		control()
		removeCgroup(root)
	}
	return waitNode(ctx, c.kubeconfig)
}

// startRuntime starts a containerd of its own with the bridge plugin as pod network. The binaries are those that knarr
// includes, laid out by run.sh.
func (u *upstream) startRuntime(ctx context.Context, dir string) (stop func(), socket string, p *process, err error) {
	state := filepath.Join(dir, "containerd")
	for _, d := range []string{"root", "state", "net.d"} {
		if err := os.MkdirAll(filepath.Join(state, d), 0o755); err != nil {
			return nil, "", nil, err
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
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "registry.k8s.io/pause:3.10.2"
`, filepath.Join(state, "root"), filepath.Join(state, "state"), socket, u.bin, filepath.Join(state, "net.d"))
	if err := os.WriteFile(filepath.Join(state, "config.toml"), []byte(config), 0o600); err != nil {
		return nil, "", nil, err
	}
	network := `{"cniVersion":"1.0.0","name":"compare","plugins":[{"type":"bridge","bridge":"knarr-cmp0","isGateway":true,"ipMasq":false,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.46.9.0/24"}]],"dataDir":"` + filepath.Join(state, "ipam") + `"}}]}`
	if err := os.WriteFile(filepath.Join(state, "net.d", "10-compare.conflist"), []byte(network), 0o600); err != nil {
		return nil, "", nil, err
	}
	p, err = start(dir, "containerd", filepath.Join(u.bin, "containerd"), []string{"PATH=" + u.bin + ":" + os.Getenv("PATH")}, "--config", filepath.Join(state, "config.toml"))
	if err != nil {
		return nil, "", nil, err
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
		return nil, "", nil, err
	}
	load := exec.Command(u.knarr, "image", "build", "--socket", socket, "--tag", "registry.k8s.io/pause:3.10.2", "--tag", "registry.k8s.io/pause:3.10", filepath.Join(u.bin, "pause"))
	if out, err := load.CombinedOutput(); err != nil {
		p.stop()
		return nil, "", nil, fmt.Errorf("pause image: %w\n%s", err, out)
	}
	return func() {
		p.stop()
		_ = exec.Command("ip", "link", "del", "knarr-cmp0").Run()
	}, socket, p, nil
}

// removePods deletes every pod and waits for the node to end them, so that no container stays.
func removePods(kubeconfig string) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	load, err := connect(kubeconfig, 1)
	if err != nil {
		return
	}
	one := int64(1)
	_ = load.set[0].CoreV1().Pods(space).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &one}, metav1.ListOptions{})
	_ = until(ctx, 60*time.Second, "pods gone", func() bool {
		list, err := load.set[0].CoreV1().Pods(space).List(ctx, metav1.ListOptions{})
		return err == nil && len(list.Items) == 0
	})
}

func waitNode(ctx context.Context, kubeconfig string) error {
	load, err := connect(kubeconfig, 1)
	if err != nil {
		return err
	}
	return until(ctx, 90*time.Second, "node Ready", func() bool {
		nodes, err := load.set[0].CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false
		}
		for _, n := range nodes.Items {
			for _, c := range n.Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
					return len(n.Spec.Taints) == 0
				}
			}
		}
		return false
	})
}

var controllers = []string{"cpu", "cpuacct", "cpuset", "memory", "pids", "devices", "freezer", "blkio", "systemd", "hugetlb", "unified", ""}

func makeCgroup(root string) error {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return os.MkdirAll(filepath.Join("/sys/fs/cgroup", root), 0o755)
	}
	for _, c := range controllers {
		base := filepath.Join("/sys/fs/cgroup", c)
		if _, err := os.Stat(filepath.Join(base, "cgroup.procs")); err == nil {
			if err := os.MkdirAll(filepath.Join(base, root), 0o755); err != nil {
				return err
			}
		}
	}
	// A cpuset without CPUs takes no process.
	for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
		if value, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/cpuset", f)); err == nil {
			_ = os.WriteFile(filepath.Join("/sys/fs/cgroup/cpuset", root, f), value, 0o644)
		}
	}
	return nil
}

func removeCgroup(root string) {
	for _, c := range controllers {
		base := filepath.Join("/sys/fs/cgroup", c, root)
		var dirs []string
		_ = filepath.WalkDir(base, func(path string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			_ = os.Remove(dirs[i])
		}
	}
}

// keys are just enough for upstream's components: one CA, one serving certificate, one administrator.
type keys struct {
	dir  string
	ca   *x509.Certificate
	sign *ecdsa.PrivateKey
}

func (k *keys) path(name string) string { return filepath.Join(k.dir, name) }

func makeKeys(dir string) (*keys, error) {
	k := &keys{dir: dir}
	var err error
	if k.sign, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	k.ca = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "compare"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature}
	if err := k.write("ca", k.ca, k.sign); err != nil {
		return nil, err
	}
	server := &x509.Certificate{Subject: pkix.Name{CommonName: "kube-apiserver"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 47, 0, 1)}, DNSNames: []string{"localhost", "kubernetes.default.svc"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	if err := k.issue("server", server); err != nil {
		return nil, err
	}
	return k, k.issue("admin", &x509.Certificate{Subject: pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
}

func (k *keys) issue(name string, template *x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<62))
	template.NotBefore, template.NotAfter, template.KeyUsage = k.ca.NotBefore, k.ca.NotAfter, x509.KeyUsageDigitalSignature
	return k.write(name, template, key)
}

func (k *keys) write(name string, template *x509.Certificate, key *ecdsa.PrivateKey) error {
	der, err := x509.CreateCertificate(rand.Reader, template, k.ca, &key.PublicKey, k.sign)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.WriteFile(k.path(name+".crt"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(k.path(name+".key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}), 0o600)
}

func (k *keys) kubeconfig(path, server, user string) error {
	config := clientcmdapi.NewConfig()
	ca, err := os.ReadFile(k.path("ca.crt"))
	if err != nil {
		return err
	}
	config.Clusters["compare"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos["user"] = &clientcmdapi.AuthInfo{ClientCertificate: k.path(user + ".crt"), ClientKey: k.path(user + ".key")}
	config.Contexts["compare"] = &clientcmdapi.Context{Cluster: "compare", AuthInfo: "user"}
	config.CurrentContext = "compare"
	return clientcmd.WriteToFile(*config, path)
}
