package adopt

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/config"
	kubernetes "github.com/knarr-project/knarr/internal/version"
)

const (
	// folder is the folder in the data folder with the copied configuration files.
	folder = "adopted"
	// SettingsFile is the file in the data folder with the settings, for --config.
	SettingsFile = "adopted.yaml"
	// StaticPods is the kubelet's folder of manifests, Parked that for the control plane's.
	StaticPods = "/etc/kubernetes/manifests"
	Parked     = "/etc/kubernetes/kubeadm-manifests"

	kubeletConfig = "/var/lib/kubelet/config.yaml"
)

// Options say what to take over.
type Options struct {
	// From is the folder that stands for / of the kubeadm machine. Default: /.
	From string
	// DataDir is the new data folder. It must not exist, or be empty.
	DataDir string
	// Manifests is the folder below From with the parked manifests. Default: Parked, else
	// StaticPods if there are none.
	Manifests string
	// Force takes over one member of an etcd of several. The others must be stopped for good.
	Force bool
	// Without names flags, as COMPONENT/FLAG, that may be lost.
	Without []string
	// Version is the cluster's version. Default: that in the API server's image.
	Version string
	Now     time.Time
}

// Plan says what an adoption does.
type Plan struct {
	Version string // of kubeadm's API server
	Server  string // the API server's address, HOST:PORT
	Rows    []Row
	// Refusals are the reasons why the adoption does not begin, each with its remedy.
	Refusals []string
	// Notes are what the administrator should know.
	Notes []string

	dataDir  string
	settings map[string]*choice
	files    []copied
	keys     *keys
	etcd     member
}

// choice is a value of the file of settings.
type choice struct {
	kind   string // pflag's name of the type
	values []string
}

// member says how kubeadm's etcd is called and where its data is.
type member struct {
	Name    string `json:"name"`
	PeerURL string `json:"peerURL"`
	DataDir string `json:"dataDir"` // on the kubeadm machine
}

func (p *Plan) refuse(format string, args ...any) {
	p.Refusals = append(p.Refusals, fmt.Sprintf(format, args...))
}

// Read reads a kubeadm machine and plans the adoption. It changes nothing. An error means that no
// plan can be made; Plan.Refusals are reasons not to carry it out.
func Read(o Options) (*Plan, error) {
	m, err := openMachine(o.From)
	if err != nil {
		return nil, fmt.Errorf("adopt: %w", err)
	}
	p, err := read(m, o)
	if err = errors.Join(err, m.close()); err != nil {
		return nil, fmt.Errorf("adopt: %w", err)
	}
	return p, nil
}

func read(m *machine, o Options) (*Plan, error) {
	dataDir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return nil, err
	}
	p := &Plan{dataDir: dataDir, settings: map[string]*choice{}}
	pods, err := m.manifests(o.Manifests)
	if err != nil {
		return nil, err
	}
	api, etcd := pods[apiserver], pods[etcdPod]
	if etcd == nil {
		return nil, fmt.Errorf("there is no manifest of etcd, so the cluster's etcd is an outside one: `knarr server --store %s` uses it where it is", strings.Join(api.all("etcd-servers"), ","))
	}
	p.checkVersion(api, o.Version)
	p.etcd = etcdMember(etcd)
	if names := initialMembers(etcd); len(names) > 1 && !o.Force {
		p.refuse("etcd had the members %s when it was made: %s", strings.Join(names, ", "), severalRemedy)
	}
	var problem error
	if p.keys, problem = m.readKeys(api, pods[controller], etcd, o.Now); problem != nil {
		p.refuse("%v", problem)
	}
	j := &judge{m: m, plan: p, flags: serverFlags(), without: o.Without, unused: slices.Clone(o.Without)}
	j.api(api, p.keys)
	j.others(pods[controller], ofController, nil)
	j.others(pods[scheduler], nil, nil)
	j.others(etcd, ofEtcd, &rule{verdict: NoEffect, note: etcdOther})
	if len(j.unused) > 0 {
		return nil, fmt.Errorf("--without %s: there is no such flag; the form is COMPONENT/FLAG, such as %s/terminated-pod-gc-threshold", strings.Join(j.unused, ","), controller)
	}
	for _, r := range p.Rows {
		if r.Verdict == Refused {
			p.refuse("%s. Remove it from kubeadm's configuration, or go on without it: --without %s/%s", r, r.Component, r.Flag)
		}
	}
	p.fixed(m, j, pods)
	p.checkStopped(m, api)
	if entries, err := os.ReadDir(dataDir); err == nil && len(entries) > 0 {
		p.refuse("%s has files already: choose another --data-dir", dataDir)
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if len(p.Refusals) == 0 {
		if err := p.validate(); err != nil {
			p.refuse("the settings are not usable together: %v", err)
		}
	}
	return p, nil
}

const severalRemedy = "stop the other control planes for good (move their manifests away), and go on with --force-new-cluster, as etcd calls it. " +
	"Take the member with the highest revision (`etcdctl endpoint status`)"

// manifests reads the static pods of the control plane.
func (m *machine) manifests(from string) (map[string]*component, error) {
	if from == "" {
		if from = Parked; !m.exists(path.Join(Parked, apiserver+".yaml")) {
			from = StaticPods
		}
	}
	pods := map[string]*component{}
	for _, name := range components {
		file := path.Join(from, name+".yaml")
		if name == etcdPod && !m.exists(file) {
			continue
		}
		data, err := m.read(file)
		if err != nil {
			return nil, fmt.Errorf("the manifests of kubeadm's control plane: %w", err)
		}
		if pods[name], err = parseComponent(name, data); err != nil {
			return nil, fmt.Errorf("%s: %w", m.host(file), err)
		}
	}
	return pods, nil
}

func (p *Plan) checkVersion(api *component, given string) {
	text := given
	if text == "" {
		text = api.image
	}
	theirs, ok := versionOf(text)
	ours, _ := versionOf(kubernetes.Kubernetes)
	switch {
	case !ok:
		p.refuse("the image %s tells no version: give it as --kubernetes-version v1.N.P", text)
		return
	case theirs.major != ours.major || theirs.minor < ours.minor-1 || theirs.minor > ours.minor+1:
		p.refuse("the cluster has Kubernetes %s, and this knarr %s: more than one minor version lies between. Upgrade the cluster with kubeadm first, or take the knarr of its version", theirs, ours)
	}
	p.Version = theirs.String()
}

// etcdMember returns how etcd is called and where its data is.
func etcdMember(c *component) member {
	url := c.get("initial-advertise-peer-urls", "http://localhost:2380")
	url, _, _ = strings.Cut(url, ",")
	return member{Name: c.get("name", "default"), PeerURL: url, DataDir: c.onHost(c.get("data-dir", "/var/lib/etcd"))}
}

// initialMembers returns the names in --initial-cluster.
func initialMembers(c *component) (names []string) {
	for _, one := range strings.Split(c.get("initial-cluster", ""), ",") {
		if name, _, ok := strings.Cut(one, "="); ok {
			names = append(names, name)
		}
	}
	return names
}

// fixed adds the settings that do not come from flags.
func (p *Plan) fixed(m *machine, j *judge, pods map[string]*component) {
	keep := func(name, kind string, values ...string) { p.settings[name] = &choice{kind, values} }
	keep("data-dir", "string", p.dataDir)
	if p.keys != nil && len(p.keys.names) > 0 {
		keep("tls-san", "stringSlice", p.keys.names...)
	}
	if pods[controller].get("cluster-cidr", "") == "" {
		p.Notes = append(p.Notes, "kubeadm gave nodes no pod ranges. knarr gives each a part of --pod-cidr; a pod network with addresses of its own ignores them")
	}
	var kubelet struct {
		ClusterDomain string   `json:"clusterDomain"`
		ClusterDNS    []string `json:"clusterDNS"`
	}
	data, err := m.read(kubeletConfig)
	if err == nil {
		err = yaml.Unmarshal(data, &kubelet)
	}
	switch {
	case err != nil:
		p.Notes = append(p.Notes, fmt.Sprintf("the cluster's domain is taken for cluster.local: %v", err))
	case kubelet.ClusterDomain != "":
		keep("cluster-domain", "string", kubelet.ClusterDomain)
	}
	p.Server = net.JoinHostPort(pods[apiserver].get("advertise-address", "127.0.0.1"), pods[apiserver].get("secure-port", "6443"))
	p.Notes = append(p.Notes,
		"kube-proxy and CoreDNS stay as they are: kubeadm's nodes need both. Nodes of knarr do without them: keep the pods off by a node selector",
		"the kubelets remove the mirror pods of kubeadm's control plane by themselves")
}

// settingsFile returns the file for --config.
func (p *Plan) settingsFile() ([]byte, error) {
	out := map[string]any{}
	for name, s := range p.settings {
		switch {
		case s.kind == "bool":
			out[name] = s.values[len(s.values)-1] == "true" || s.values[len(s.values)-1] == "True"
		case len(s.values) == 1:
			out[name] = s.values[0]
		default:
			out[name] = s.values
		}
	}
	data, err := yaml.Marshal(out)
	return append([]byte("# Settings of the control plane that kubeadm made: knarr server --config "+filepath.Join(p.dataDir, SettingsFile)+"\n"), data...), err
}

// validate reads the settings as `knarr server` does.
func (p *Plan) validate() error {
	data, err := p.settingsFile()
	if err != nil {
		return err
	}
	f, err := os.CreateTemp("", "knarr-adopt-*.yaml")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	c := config.Default()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.AddFlags(flags, config.Process|config.Server|config.Controlling|config.Joining)
	if err := config.ReadFile(flags, f.Name()); err != nil {
		return errors.New(strings.ReplaceAll(err.Error(), f.Name()+": ", ""))
	}
	return c.Complete()
}
