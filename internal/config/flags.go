package config

import (
	"fmt"

	"github.com/spf13/pflag"
)

// Groups is a set of groups of settings. A command offers the groups of the parts that it runs.
type Groups uint16

const (
	Process          Groups = 1 << iota // data folder, logs
	Server                              // store and API server
	Controlling                         // the controllers
	ControllersAlone                    // the controllers in a process of their own
	SchedulerAlone                      // the scheduler in a process of its own
	NodeAlone                           // the node agent in a process of its own
	ProxyAlone                          // the service proxy in a process of its own
	Node                                // node agent, runtime, network
	Joining                             // how to reach an existing server
)

// networked are the parts that need the cluster's address ranges.
const networked = Server | Controlling | ControllersAlone | Node | NodeAlone | ProxyAlone

// allGroups lists sets of groups that together have all settings. Components that run alone share
// some names, so one set would not do.
var allGroups = []Groups{
	Process | Server | Controlling | NodeAlone | Node | Joining, Process | ControllersAlone, Process | SchedulerAlone,
}

// controlPlane reports whether the groups contain a whole control plane.
func (g Groups) controlPlane() bool { return g&Server != 0 && g&Controlling != 0 }

// AddFlags adds the flags of the groups, with c's current values as defaults.
func (c *Config) AddFlags(f *pflag.FlagSet, groups Groups) {
	f.SortFlags = false
	c.noPods = groups == Process|Server
	if groups&Process != 0 {
		topic(f, Basics, c.addBasics)
	}
	if groups&(ControllersAlone|SchedulerAlone|NodeAlone|ProxyAlone) != 0 {
		topic(f, Basics, c.addKubeconfig)
	}
	if groups&Joining != 0 {
		topic(f, Basics, c.addJoining)
	}
	if groups&(Node|ProxyAlone) != 0 || groups.controlPlane() {
		topic(f, NodeTopic, c.addNodeName)
	}
	if groups&Node != 0 {
		topic(f, NodeTopic, c.addNode)
	}
	if groups&networked != 0 {
		topic(f, Network, c.addRanges)
	}
	if groups&NodeAlone != 0 {
		topic(f, NodeTopic, c.addDropIns)
		topic(f, Network, c.addPeers)
	}
	if groups&Server != 0 {
		topic(f, ServingTopic, c.addListen)
		topic(f, Network, func(f *pflag.FlagSet) {
			f.StringVar(&c.NodePortRange, "node-port-range", c.NodePortRange, "ports for Services of type NodePort, as `FIRST-LAST`")
		})
		topic(f, StoreTopic, c.addStore)
		topic(f, SnapshotTopic, c.Snapshots.addFlags)
		topic(f, Admitting, c.addAdmission)
		c.APIServer.addFlags(f)
		c.addUpstream(f)
	}
	if groups&Controlling != 0 {
		topic(f, ControllerWork, c.addControlling)
		topic(f, Network, c.addPool)
	}
	if groups.controlPlane() {
		topic(f, ControllerWork, c.addLocalStorage)
		topic(f, ControllerWork, c.addArchitecture)
		topic(f, ControllerWork, c.addScheduling)
		topic(f, StoreTopic, c.addPeerListen)
	}
	if groups&ControllersAlone != 0 {
		c.Controllers.addFlags(f)
		c.Observe.addFlags(f, controllersPort)
	}
	if groups&(ControllersAlone|SchedulerAlone) != 0 {
		topic(f, ControllerWork, c.APIServer.addGates)
	}
	if groups&SchedulerAlone != 0 {
		topic(f, Basics, c.addScheduling)
		c.Observe.addFlags(f, schedulerPort)
	}
}

// TakeFlags adds only the named settings, for a command that reads no others. It panics on an
// unknown name.
func (c *Config) TakeFlags(f *pflag.FlagSet, names ...string) {
	f.SortFlags = false
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	c.AddFlags(all, allGroups[0])
	for _, name := range names {
		flag := all.Lookup(name)
		if flag == nil {
			panic(fmt.Sprintf("config: no setting is called %s", name))
		}
		f.AddFlag(flag)
	}
}

func (c *Config) addBasics(f *pflag.FlagSet) {
	f.StringVar(&c.DataDir, "data-dir", c.DataDir, "`DIR` for all data of the cluster\nIt holds the store, keys, images and pods' files. The admin kubeconfig is DIR/kubeconfig.")
	f.StringVar(&c.File, "config", c.File, "YAML `FILE` with settings, named as the flags; flags win\nFor example, a line `max-pods: 50`. One file can serve all commands of a cluster.")
	f.StringVar(&c.RunDir, "run-dir", c.RunDir, "`DIR` for sockets and pid files, at most 60 characters (default: a folder in /run/knarr)\nThe default is /run/knarr/default, or another folder below /run/knarr for another data folder.")
	f.StringVar(&c.AdvertiseAddress, "advertise-address", c.AdvertiseAddress, "`IP` at which others reach this machine (default: the default route's)")
	f.StringVar(&c.LogLevel, "log-level", c.LogLevel, "`LEVEL` of the log: debug, info, warn or error")
	values(f, "log-level", logLevels...)
}

var logLevels = []string{"debug", "info", "warn", "error"}

func (c *Config) addKubeconfig(f *pflag.FlagSet) {
	f.StringVar(&c.Kubeconfig, "kubeconfig", c.Kubeconfig, "kubeconfig `FILE` for the API server; required")
}

func (c *Config) addJoining(f *pflag.FlagSet) {
	f.StringVar(&c.Join, "join", c.Join, "`URL` of a server of the cluster, such as https://10.0.0.5:6443, or several with commas between\nNeeded for the first start only, which uses the first server that answers. HOST and HOST:PORT are enough; the port is 6443 by default.")
	f.StringVar(&c.TokenFile, "token-file", c.TokenFile, "`FILE` with the token from `knarr token create`; - reads the standard input\nNeeded for the first start only.")
	f.StringVar(&c.Token, "token", c.Token, "`TOKEN` itself; all users of this machine see it in ps, so prefer --token-file")
}

func (c *Config) addNodeName(f *pflag.FlagSet) {
	f.StringVar(&c.NodeName, "node-name", c.NodeName, "`NAME` of this node or server in the cluster (default: the host's name)")
}

func (c *Config) addNode(f *pflag.FlagSet) {
	f.StringVar(&c.KubeletConfig, "kubelet-config", c.KubeletConfig, "KubeletConfiguration `FILE` with the node's settings; flags win\nThe format is upstream's (kubelet.config.k8s.io/v1beta1). docs/guides/node-settings.md lists its fields. `knarr kubelet` also takes it as --config.")
	f.StringVar(&c.KubeletConfigDir, "kubelet-config-dir", c.KubeletConfigDir, "`DIR` with *.conf files over --kubelet-config, in the order of their names")
	f.StringVar(&c.CredentialConfig, "image-credential-provider-config", c.CredentialConfig, "CredentialProviderConfig `FILE`, or a folder of such files, of plugins that give images' credentials\nThe format is upstream's (kubelet.config.k8s.io/v1).")
	f.StringVar(&c.CredentialDir, "image-credential-provider-bin-dir", c.CredentialDir, "`DIR` of the plugins of --image-credential-provider-config")
	f.StringSliceVar(&c.RegisterWithTaints, "register-with-taints", c.RegisterWithTaints, "taints of the node when it first registers, as `KEY=VALUE:EFFECT`\nEffects: NoSchedule, PreferNoSchedule, NoExecute. For example, dedicated=db:NoSchedule.")
	f.StringToStringVar(&c.KubeReserved, "kube-reserved", c.KubeReserved, "resources kept for knarr, as `NAME=QUANTITY` (default: some memory and process IDs)\nNames: cpu, memory, ephemeral-storage, pid. For example, cpu=200m,memory=512Mi.")
	f.StringToStringVar(&c.SystemReserved, "system-reserved", c.SystemReserved, "resources kept for the machine's other programs, as `NAME=QUANTITY`")
	f.StringVar(&c.NodeIP, "node-ip", c.NodeIP, "`IP` of this node in the cluster, its InternalIP (default: --advertise-address)\nIt must be an address of this machine. 0.0.0.0 and :: mean the default.")
	f.StringToStringVar(&c.NodeLabels, "node-labels", c.NodeLabels, "labels to add to the node, as `KEY=VALUE`,KEY=VALUE")
	f.IntVar(&c.MaxPods, "max-pods", c.MaxPods, "largest number of pods on this node")
	f.StringSliceVar(&c.EvictionHard, "eviction-hard", c.EvictionHard, "thresholds below which the node evicts pods, as `SIGNAL<QUANTITY` (default: upstream's)\nSignals: memory.available, nodefs.available, nodefs.inodesFree, imagefs.available, imagefs.inodesFree, pid.available. For example, memory.available<100Mi,nodefs.available<5%. The defaults are memory.available<100Mi, nodefs.available<10%, imagefs.available<15% and 5% of the inodes; given thresholds replace all of them.")
	f.IntVar(&c.ImageGCHigh, "image-gc-high-threshold", c.ImageGCHigh, "`PERCENT` of disk use above which unused images are removed; 100 keeps them")
	f.IntVar(&c.ImageGCLow, "image-gc-low-threshold", c.ImageGCLow, "`PERCENT` of disk use at which the removal of images ends")
	f.StringSliceVar(&c.LocalStoragePaths, "local-storage-path", c.LocalStoragePaths, "folder for volumes of this node, as `PATH` or NAME=PATH (default: DATA-DIR/volumes)\nPATH alone is the folder of the default StorageClass. The parameter `folder` of a class selects another one by its NAME.")
	f.IntVar(&c.LocalStorageReserved, "local-storage-reserved", c.LocalStorageReserved, "`PERCENT` of the disk that volumes of this node leave free")
	f.StringVar(&c.KubeletDir, "kubelet-dir", c.KubeletDir, "`DIR` where the node agent keeps pods, and where drivers register (default: /var/lib/kubelet if free)\nManifests of CSI drivers and device plugins expect /var/lib/kubelet. The default is DATA-DIR/kubelet if another kubelet uses /var/lib/kubelet, or if the data folder is not /var/lib/knarr.")
	f.StringVar(&c.KubeletListen, "kubelet-listen", c.KubeletListen, "`IP:PORT` of the node's own HTTPS API")
	f.StringVar(&c.RegistryHosts, "registry-hosts", c.RegistryHosts, "`DIR` with a REGISTRY/hosts.toml for each image registry that has mirrors (default: DATA-DIR/registries)\nThe format is containerd's.")
	f.StringVar(&c.StaticPods, "static-pods", c.StaticPods, "`DIR` of manifests of static pods (default: DATA-DIR/manifests)")
	f.StringVar(&c.ManifestURL, "manifest-url", c.ManifestURL, "`URL` of pod manifests that this node fetches and runs")
	f.StringVar(&c.RuntimeEndpoint, "runtime-endpoint", c.RuntimeEndpoint, "`SOCKET` of another CRI runtime, as unix:///PATH (default: the included containerd)")
	f.StringVar(&c.CgroupRoot, "cgroup-root", c.CgroupRoot, "`CGROUP` below which pods' cgroups are made (default: /knarr)\nThe default is /knarr for /var/lib/knarr, and /knarr-HASH for another data folder.")
	f.DurationVar(&c.NodeLeaseDuration.Duration, "node-lease-duration", c.NodeLeaseDuration.Duration, "lifetime of the node's lease, in whole seconds; renewed four times per lifetime")
}

func (c *Config) addScheduling(f *pflag.FlagSet) {
	f.StringVar(&c.SchedulerConfig, "scheduler-config", c.SchedulerConfig, "KubeSchedulerConfiguration `FILE` with the scheduler's settings; a change counts at once\nThe format is upstream's (kubescheduler.config.k8s.io/v1). docs/guides/scheduler.md shows it. `knarr scheduler` also takes it as --config.")
}

func (c *Config) addRanges(f *pflag.FlagSet) {
	f.StringVar(&c.PodCIDR, "pod-cidr", c.PodCIDR, "`CIDR` range of pods' IPs; each node gets a /24")
	f.StringVar(&c.ServiceCIDR, "service-cidr", c.ServiceCIDR, "`CIDR` range of Services' cluster IPs\n`knarr apiserver` also takes one range of each family, separated by a comma. The first one is the default family.")
	f.StringVar(&c.ClusterDomain, "cluster-domain", c.ClusterDomain, "DNS `DOMAIN` of the cluster's Services and pods")
}

// addDropIns adds the name that upstream's kubelet has for --kubelet-config-dir.
func (c *Config) addDropIns(f *pflag.FlagSet) {
	f.StringVar(&c.KubeletConfigDir, "config-dir", c.KubeletConfigDir, "`DIR` with *.conf files over the KubeletConfiguration: upstream's name of --kubelet-config-dir")
}

func (c *Config) addPeers(f *pflag.FlagSet) {
	f.StringVar(&c.NetworkKubeconfig, "network-kubeconfig", c.NetworkKubeconfig, "kubeconfig `FILE` with which the pod network reads all nodes (default: --kubeconfig)\nUpstream's API server does not let a node read other nodes. The user system:kube-proxy can.")
}

func (c *Config) addListen(f *pflag.FlagSet) {
	f.StringVar(&c.Listen, "listen", c.Listen, "`IP:PORT` of the API server")
	f.StringSliceVar(&c.TLSNames, "tls-san", c.TLSNames, "more names and `ADDRESSES` for the API server's certificate")
}

func (c *Config) addStore(f *pflag.FlagSet) {
	f.StringSliceVar(&c.StoreEndpoints, "store", c.StoreEndpoints, "`URLS` of an outside etcd (default: the embedded store)\nTake snapshots of an outside etcd with etcdctl: `knarr snapshot` refuses it, because it may hold more than this cluster.")
	f.StringVar(&c.StoreCA, "store-ca", c.StoreCA, "CA certificate `FILE` of the outside etcd, PEM")
	f.StringVar(&c.StoreCert, "store-cert", c.StoreCert, "client certificate `FILE` for the outside etcd, PEM")
	f.StringVar(&c.StoreKey, "store-key", c.StoreKey, "key `FILE` of that certificate, PEM")
	f.StringVar(&c.StorePrefix, "etcd-prefix", c.StorePrefix, "`KEY` that is the prefix of all objects in the store\nSeveral clusters can share one outside etcd. None of their prefixes may be below another one's.")
	f.StringSliceVar(&c.StoreOverrides, "etcd-servers-overrides", c.StoreOverrides, "built-in kinds with an etcd of their own: `GROUP/RESOURCE#URL`;URL\nFor example, /events#http://etcd6:2379. The certificates are those of --store, which must be set.")
	f.StringVar(&c.StoreQuota, "store-quota", c.StoreQuota, "`SIZE` that the data may have in the embedded store, such as 8Gi\nAt the quota the server refuses what would make the data grow. Deletions, heartbeats and updates that do not grow go on, and deleted objects make room again.")
	f.DurationVar(&c.CompactionInterval.Duration, "compaction-interval", c.CompactionInterval.Duration, "time between compactions of old revisions; 0 turns compaction off")
}

func (c *Config) addPeerListen(f *pflag.FlagSet) {
	f.StringVar(&c.PeerListen, "peer-listen", c.PeerListen, "`IP:PORT` at which other servers reach the embedded store\nThe port is opened once there is another server. Servers authenticate each other by certificates.")
}

func (c *Config) addAdmission(f *pflag.FlagSet) {
	f.StringSliceVar(&c.EnableAdmission, "enable-admission-plugins", c.EnableAdmission, "admission `PLUGINS` to turn on in addition to the default ones")
	f.StringSliceVar(&c.DisableAdmission, "disable-admission-plugins", c.DisableAdmission, "admission `PLUGINS` to turn off")
	f.StringVar(&c.AdmissionConfig, "admission-control-config-file", c.AdmissionConfig, "AdmissionConfiguration `FILE` with settings of admission plugins")
}

func (c *Config) addPool(f *pflag.FlagSet) {
	f.StringSliceVar(&c.LoadBalancerPool, "load-balancer-pool", c.LoadBalancerPool, "addresses of Services of type LoadBalancer: `RANGES`, nodes, resources or none\nA range is FIRST-LAST, a CIDR or an address, such as 192.168.1.240-192.168.1.250. One node answers ARP and NDP for each address. With nodes, Services share the nodes' own addresses. With resources, LoadBalancerPool objects hold the ranges; other values serve the Services without such a pool. With none, an add-on gives addresses.")
}

func (c *Config) addControlling(f *pflag.FlagSet) {
	f.DurationVar(&c.NodeMonitorGrace.Duration, "node-monitor-grace-period", c.NodeMonitorGrace.Duration, "silence after which a node is not ready and its pods are replaced\nA node renews its lease four times in its --node-lease-duration.")
	f.DurationVar(&c.LegacyTokenPeriod.Duration, "legacy-service-account-token-clean-up-period", c.LegacyTokenPeriod.Duration, "unused time after which a generated token Secret becomes invalid\nThe Secret is deleted after as long again.")
	f.DurationVar(&c.Controllers.SigningDuration.Duration, "cluster-signing-duration", c.Controllers.SigningDuration.Duration, "longest lifetime of a signed certificate, such as a node's\nNodes renew their certificates by themselves.")
}
