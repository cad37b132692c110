package main

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// The two sides that a part can come from.
const (
	ours   = "knarr"
	theirs = "upstream"
)

// layout names the side of each part of a cluster.
type layout struct{ name, api, controllers, scheduler, node string }

// mixed is a running cluster with parts of both sides. All programs get what an installer of
// Kubernetes gives them: their own identity, only the rights of the bootstrap roles, one CA.
type mixed struct {
	layout
	o         *options
	dir       string
	keys      *keys
	server    string // URL
	processes []*process
	up        *upstream
}

func (m *mixed) admin() string { return filepath.Join(m.dir, "admin.conf") }

// startMixed starts the control plane, and the node if the layout has one.
func startMixed(ctx context.Context, o *options, l layout, dir string) (m *mixed, err error) {
	if err := os.MkdirAll(filepath.Join(dir, "pki"), 0o700); err != nil {
		return nil, err
	}
	m = &mixed{layout: l, o: o, dir: dir, up: &upstream{bin: o.upstream, knarr: o.knarr, cgroup: "/" + o.cgroup + "-" + l.name}}
	defer func() {
		if err != nil {
			m.stop()
		}
	}()
	if m.keys, err = clusterKeys(filepath.Join(dir, "pki")); err != nil {
		return m, err
	}
	port := freePort()
	m.server = fmt.Sprintf("https://127.0.0.1:%d", port)
	for file, user := range map[string]string{"admin.conf": "admin", "controllers.conf": "controller-manager", "scheduler.conf": "scheduler", "node.conf": "node", "proxy.conf": "proxy"} {
		if err := m.keys.kubeconfig(filepath.Join(dir, file), m.server, user); err != nil {
			return m, err
		}
	}
	if err := m.startAPI(ctx, port); err != nil {
		return m, err
	}
	if err := errors.Join(m.startControllers(), m.startScheduler()); err != nil {
		return m, err
	}
	if l.node == "" {
		return m, nil
	}
	return m, m.startNode(ctx)
}

// clusterKeys creates the keys of all parts, signed by one CA.
func clusterKeys(dir string) (*keys, error) {
	k, err := makeKeys(dir)
	if err != nil {
		return nil, err
	}
	client := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	for name, subject := range map[string]pkix.Name{
		"controller-manager": {CommonName: "system:kube-controller-manager"},
		"scheduler":          {CommonName: "system:kube-scheduler"},
		"proxy":              {CommonName: "system:kube-proxy"},
		"node":               {CommonName: "system:node:" + nodeName, Organization: []string{"system:nodes"}},
		"kubelet-client":     {CommonName: "kube-apiserver-kubelet-client", Organization: []string{"system:masters"}},
		"front-proxy-client": {CommonName: "front-proxy-client"},
		"sa":                 {CommonName: "service-accounts"},
	} {
		if err := k.issue(name, &x509.Certificate{Subject: subject, ExtKeyUsage: client}); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// launch starts one of the programs; its log is DIR/PART.log.
func (m *mixed) launch(part, path string, args ...string) error {
	p, err := start(m.dir, part, path, nil, args...)
	if err == nil {
		m.processes = append(m.processes, p)
	}
	return err
}

const auditPolicy = `{"apiVersion":"audit.k8s.io/v1","kind":"Policy","omitStages":["RequestReceived"],"rules":[{"level":"Metadata"}]}`

// startAPI starts the API server with an audit log of every answer, and waits until it is ready.
func (m *mixed) startAPI(ctx context.Context, port int) error {
	policy := filepath.Join(m.dir, "audit.json")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	audit := []string{"--audit-policy-file", policy, "--audit-log-path", m.audit()}
	var err error
	if m.api == ours {
		err = m.startOurAPI(filepath.Join(m.dir, "data"), port, audit)
	} else {
		err = m.startTheirAPI(ctx, port, audit)
	}
	if err != nil {
		return err
	}
	return waitReady(ctx, m.admin(), m.processes...)
}

func (m *mixed) audit() string { return filepath.Join(m.dir, "audit.log") }

func (m *mixed) startOurAPI(data string, port int, extra []string) error {
	if err := handOver(m.keys, filepath.Join(data, "pki")); err != nil {
		return err
	}
	return m.launch("api", m.o.knarr, append([]string{"apiserver", "--data-dir", data, "--listen", fmt.Sprintf("0.0.0.0:%d", port),
		"--advertise-address", address, "--pod-cidr", podRange, "--service-cidr", serviceRange, "--log-level", "info"}, extra...)...)
}

// handOver writes the CA and the signing key of service account tokens to the places that knarr
// reads.
func handOver(k *keys, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, name := range []string{"ca.crt", "ca.key", "sa.key"} {
		data, err := os.ReadFile(k.path(name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// startEtcd starts upstream's store and returns its URL.
func (m *mixed) startEtcd(data string) (string, error) {
	client, peer := fmt.Sprintf("http://127.0.0.1:%d", freePort()), fmt.Sprintf("http://127.0.0.1:%d", freePort())
	return client, m.launch("etcd", filepath.Join(m.o.upstream, "etcd"), "--data-dir", data, "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer, "--log-level", "warn")
}

func (m *mixed) startTheirAPI(_ context.Context, port int, extra []string) error {
	store, err := m.startEtcd(filepath.Join(m.dir, "etcd"))
	if err != nil {
		return err
	}
	return m.launch("api", filepath.Join(m.o.upstream, "kube-apiserver"), append(theirAPIFlags(m.keys, store, port), extra...)...)
}

func theirAPIFlags(k *keys, store string, port int) []string {
	return []string{
		"--etcd-servers", store, "--secure-port", fmt.Sprint(port), "--bind-address", "0.0.0.0", "--advertise-address", address,
		"--service-cluster-ip-range", serviceRange, "--client-ca-file", k.path("ca.crt"), "--tls-cert-file", k.path("server.crt"), "--tls-private-key-file", k.path("server.key"),
		"--service-account-issuer", "https://kubernetes.default.svc.cluster.local", "--service-account-key-file", k.path("sa.key"), "--service-account-signing-key-file", k.path("sa.key"),
		"--kubelet-client-certificate", k.path("kubelet-client.crt"), "--kubelet-client-key", k.path("kubelet-client.key"), "--kubelet-preferred-address-types", "InternalIP", "--authorization-mode", "Node,RBAC",
		"--enable-admission-plugins", "NodeRestriction", "--enable-bootstrap-token-auth",
		"--requestheader-client-ca-file", k.path("ca.crt"), "--requestheader-allowed-names", "front-proxy-client", "--requestheader-username-headers", "X-Remote-User",
		"--requestheader-group-headers", "X-Remote-Group", "--requestheader-extra-headers-prefix", "X-Remote-Extra-",
		"--proxy-client-cert-file", k.path("front-proxy-client.crt"), "--proxy-client-key-file", k.path("front-proxy-client.key"),
	}
}

func (m *mixed) startControllers() error {
	conf := filepath.Join(m.dir, "controllers.conf")
	if m.controllers == ours {
		return m.launch("controllers", m.o.knarr, "controllers", "--data-dir", filepath.Join(m.dir, "controllers"), "--kubeconfig", conf, "--advertise-address", address,
			"--pod-cidr", podRange, "--service-cidr", serviceRange, "--log-level", "info", "--use-service-account-credentials", "--root-ca-file", m.keys.path("ca.crt"),
			"--service-account-private-key-file", m.keys.path("sa.key"), "--cluster-signing-cert-file", m.keys.path("ca.crt"), "--cluster-signing-key-file", m.keys.path("ca.key"))
	}
	return m.launch("controllers", filepath.Join(m.o.upstream, "kube-controller-manager"), "--kubeconfig", conf, "--authentication-kubeconfig", conf, "--authorization-kubeconfig", conf,
		"--bind-address", "127.0.0.1", "--secure-port", fmt.Sprint(freePort()), "--cert-dir", filepath.Join(m.dir, "controllers"), "--client-ca-file", m.keys.path("ca.crt"),
		"--use-service-account-credentials", "--controllers", "*,bootstrapsigner,tokencleaner", "--cluster-cidr", podRange, "--allocate-node-cidrs", "--service-cluster-ip-range", serviceRange,
		"--root-ca-file", m.keys.path("ca.crt"), "--service-account-private-key-file", m.keys.path("sa.key"), "--cluster-signing-cert-file", m.keys.path("ca.crt"),
		"--cluster-signing-key-file", m.keys.path("ca.key"), "--flex-volume-plugin-dir", filepath.Join(m.dir, "plugins"), "--pvclaimbinder-sync-period", "2s")
}

func (m *mixed) startScheduler() error {
	conf := filepath.Join(m.dir, "scheduler.conf")
	if m.scheduler == ours {
		return m.launch("scheduler", m.o.knarr, "scheduler", "--data-dir", filepath.Join(m.dir, "scheduler"), "--kubeconfig", conf, "--advertise-address", address, "--log-level", "info")
	}
	return m.launch("scheduler", filepath.Join(m.o.upstream, "kube-scheduler"), "--kubeconfig", conf, "--authentication-kubeconfig", conf, "--authorization-kubeconfig", conf,
		"--bind-address", "127.0.0.1", "--secure-port", fmt.Sprint(freePort()), "--cert-dir", filepath.Join(m.dir, "scheduler"))
}

// startNode starts the node agent with a container runtime and the pods' image. Both sides use
// knarr's Services, since upstream's kube-proxy needs the programs of nftables.
func (m *mixed) startNode(ctx context.Context) error {
	var err error
	if m.node == ours {
		err = m.startOurNode(ctx)
	} else {
		err = m.startTheirNode(ctx)
	}
	if err != nil {
		return err
	}
	return m.launch("proxy", m.o.knarr, "proxy", "--data-dir", filepath.Join(m.dir, "proxy"), "--kubeconfig", filepath.Join(m.dir, "proxy.conf"), "--node-name", nodeName,
		"--advertise-address", address, "--pod-cidr", podRange, "--service-cidr", serviceRange, "--log-level", "info")
}

func (m *mixed) startOurNode(ctx context.Context) error {
	data := filepath.Join(m.dir, "node")
	if err := m.launch("node", m.o.knarr, "kubelet", "--data-dir", data, "--kubeconfig", filepath.Join(m.dir, "node.conf"), "--network-kubeconfig", filepath.Join(m.dir, "proxy.conf"),
		"--node-name", nodeName, "--advertise-address", address, "--kubelet-listen", net.JoinHostPort(address, fmt.Sprint(freePort())), "--cgroup-root", m.up.cgroup, "--pod-cidr", podRange, "--service-cidr", serviceRange, "--log-level", "info"); err != nil {
		return err
	}
	return m.loadImage(ctx, "--data-dir", data)
}

func (m *mixed) startTheirNode(ctx context.Context) error {
	runtime, socket, err := m.up.startRuntime(ctx, m.dir)
	if err != nil {
		return err
	}
	m.processes = append(m.processes, runtime)
	kubelet, err := m.up.startKubelet(kubelet{
		dir: m.dir, socket: socket, kubeconfig: filepath.Join(m.dir, "node.conf"), log: "node",
		extra: fmt.Sprintf(`authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %s}}
authorization: {mode: Webhook}
serverTLSBootstrap: true
`, m.keys.path("ca.crt")),
	})
	if err != nil {
		return err
	}
	m.processes = append(m.processes, kubelet)
	return m.loadImage(ctx, "--socket", socket)
}

// podImage is the image with the program of the end-to-end tests' containers.
const podImage = "localhost/sailor:1"

// withImage replaces IMAGE in a manifest by the image.
func withImage(manifest string) string { return strings.ReplaceAll(manifest, "IMAGE", podImage) }

func (m *mixed) loadImage(ctx context.Context, where ...string) error {
	var out []byte
	err := until(ctx, 60*time.Second, "the runtime takes an image", func() bool {
		args := append([]string{"image", "build"}, where...)
		var err error
		if out, err = exec.CommandContext(ctx, m.o.knarr, append(args, "--tag", podImage, m.o.sailor)...).CombinedOutput(); err != nil {
			time.Sleep(200 * time.Millisecond)
		}
		return err == nil
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// alive returns an error that names a process that has ended by itself.
func (m *mixed) alive() error {
	for _, p := range m.processes {
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %s", p.name, p.lastOutput())
		default:
		}
	}
	return nil
}

func (m *mixed) stop() {
	for i := len(m.processes) - 1; i >= 0; i-- {
		m.processes[i].stop()
	}
	m.processes = nil
	m.o.keepLogs(m.dir)
}
