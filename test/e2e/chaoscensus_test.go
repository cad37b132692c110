package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/cri"
)

// census is all that a node holds for its pods: one text for each mount, link, cgroup, process, ...
// A text contains the UID of the pod or the id of the container or sandbox that it belongs to, if
// the node names it so.
type census map[string]bool

func (c census) add(format string, args ...any) { c[fmt.Sprintf(format, args...)] = true }

// count returns the census of the node.
func (n *nodeChaos) count() (census, error) {
	c := census{}
	ns, err := netns.GetFromPid(n.space.pid)
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	owners, err := n.attachments(c)
	if err == nil {
		err = n.countLinks(c, ns, owners)
	}
	if err == nil {
		err = countRules(c, ns, owners)
	}
	if err == nil {
		err = n.countMounts(c, owners)
	}
	if err == nil {
		err = n.countRuntime(c)
	}
	n.countCgroups(c)
	n.countProcesses(c)
	n.countFolders(c)
	for _, loop := range loopsBelow(n.dir) {
		_, file, _ := strings.Cut(loop, ": ") // the number of the device may change
		c.add("loop device of %s", strings.TrimSuffix(file, " (deleted)"))
	}
	return c, err
}

// attachments reads the pool's addresses in use. It returns the sandbox of each link and network
// namespace.
func (n *nodeChaos) attachments(c census) (map[string]string, error) {
	owners := map[string]string{}
	files, err := filepath.Glob(filepath.Join(n.dir, "*", "attachments", "*"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		var a struct {
			ContainerID, PodUID, HostLink, NetNS string
			IPs                                  []string
		}
		data, err := os.ReadFile(file)
		if err != nil || json.Unmarshal(data, &a) != nil {
			c.add("unreadable attachment %s", filepath.Base(file))
			continue
		}
		owner := a.ContainerID + " " + a.PodUID
		owners[a.HostLink], owners[a.NetNS] = owner, owner
		c.add("address %v of %s", a.IPs, owner)
	}
	return owners, nil
}

func (n *nodeChaos) countLinks(c census, ns netns.NsHandle, owners map[string]string) error {
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		return err
	}
	defer h.Close()
	links, err := h.LinkList()
	if err != nil {
		return err
	}
	names := map[int]string{}
	for _, link := range links {
		names[link.Attrs().Index] = link.Attrs().Name
		c.add("link %s of %s", link.Attrs().Name, owners[link.Attrs().Name])
	}
	routes, err := h.RouteList(nil, netlink.FAMILY_V4) // link-local routes of IPv6 come late
	if err != nil {
		return err
	}
	for _, route := range routes {
		c.add("route to %v by %s of %s", route.Dst, names[route.LinkIndex], owners[names[route.LinkIndex]])
	}
	return nil
}

// countRules counts the elements of the sets and maps of nftables.
func countRules(c census, ns netns.NsHandle, owners map[string]string) error {
	conn, err := nftables.New(nftables.WithNetNSFd(int(ns)))
	if err != nil {
		return err
	}
	tables, err := conn.ListTables()
	if err != nil {
		return err
	}
	for _, table := range tables {
		sets, err := conn.GetSets(table)
		if err != nil {
			return err
		}
		for _, set := range sets {
			elements, err := conn.GetSetElements(set)
			if err != nil {
				continue // an anonymous set of a rule that was replaced
			}
			if set.Anonymous {
				continue
			}
			if strings.HasPrefix(set.Name, "hostport") {
				c.add("elements of %s in %s: %d", set.Name, table.Name, len(elements))
			}
			if !strings.HasPrefix(set.Name, "pod-sources") {
				continue // of Services
			}
			for _, e := range elements {
				link := bytes.TrimRight(e.Key[:min(16, len(e.Key))], "\x00")
				c.add("element %x of %s in %s, of %s", e.Key, set.Name, table.Name, owners[string(link)])
			}
		}
	}
	return nil
}

// countMounts counts the mounts in the machine's mount namespace.
func (n *nodeChaos) countMounts(c census, owners map[string]string) error {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", n.space.pid))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		point := fields[4]
		for _, dir := range []string{n.dir, n.runDir} {
			if strings.HasPrefix(point, dir+"/") {
				c.add("mount %s of %s", point, owners[point])
			}
		}
	}
	return nil
}

// countRuntime counts the pods and containers of the runtime.
func (n *nodeChaos) countRuntime(c census) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	services, err := cri.Connect(ctx, filepath.Join(n.runDir, "containerd.sock"), cri.Options{})
	if err != nil {
		return err
	}
	defer services.Close(ctx)
	sandboxes, err := services.Runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return err
	}
	for _, s := range sandboxes {
		c.add("sandbox %s %v of %s %s", s.Id, s.State, s.Metadata.Name, s.Metadata.Uid)
	}
	containers, err := services.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return err
	}
	for _, one := range containers {
		c.add("container %s %v of %s", one.Id, one.State, one.Labels["io.kubernetes.pod.uid"])
	}
	return nil
}

func (n *nodeChaos) countCgroups(c census) {
	for _, top := range n.cgroups() {
		_ = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			// Those above the pods' come with the first pod and stay.
			if err == nil && d.IsDir() && strings.Contains(path, "/pod") {
				c.add("cgroup %s", path)
			}
			return nil
		})
	}
}

// countProcesses counts the node's processes by program. The text has no process id, because those
// of knarr and containerd change.
func (n *nodeChaos) countProcesses(c census) {
	for _, pid := range n.processes() {
		line := commandLine(pid)
		if line == "" {
			continue
		}
		group, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		_, pod, _ := strings.Cut(string(group), n.cgroup())
		pod, _, _ = strings.Cut(pod, "\n")
		program, rest, _ := strings.Cut(line, " ")
		if base := filepath.Base(program); base == "knarr" || strings.HasPrefix(base, "knarr-fail") || base == "containerd" || base == "nsenter" {
			rest = ""
		}
		c.add("process %s %s in %s", filepath.Base(program), rest, pod)
	}
}

// countFolders counts the folders with a name for each pod, sandbox or container.
func (n *nodeChaos) countFolders(c census) {
	for _, pattern := range []string{
		n.dir + "/kubelet/pods/*", n.dir + "/kubelet/pod-logs/*", n.dir + "/kubelet/container-logs/*", n.dir + "/volumes/*",
		n.dir + "/kubelet/.*", n.dir + "/.*-[0-9]*", n.dir + "/pki/.*",
		n.dir + "/containerd/io.containerd.grpc.v1.cri/*/*",
		n.runDir + "/containerd/io.containerd.runtime.v2.task/k8s.io/*", n.runDir + "/containerd/io.containerd.grpc.v1.cri/*/*",
		n.runDir + "/containerd/io.containerd.grpc.v1.cri/containers/*/io/*", n.runDir + "/runc/k8s.io/*", n.runDir + "/containerd/netns/*",
	} {
		found, _ := filepath.Glob(pattern)
		for _, path := range found {
			c.add("file %s", path)
		}
	}
}

// surplus returns what belongs to no pod of the API and was not there before the first pod.
func (n *nodeChaos) surplus(now census) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	pods, err := n.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	volumes, err := n.client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var living []string
	for _, v := range volumes.Items {
		living = append(living, v.Name)
	}
	for _, p := range pods.Items {
		living = append(living, string(p.UID))
	}
	for text := range now {
		for _, kind := range []string{"sandbox ", "container "} {
			if rest, ok := strings.CutPrefix(text, kind); ok && containsAny(text, living) {
				id, _, _ := strings.Cut(rest, " ")
				living = append(living, id)
			}
		}
		if rest, ok := strings.CutPrefix(text, "mount "); ok && strings.Contains(rest, "/netns/") && containsAny(text, living) {
			point, _, _ := strings.Cut(rest, " ")
			living = append(living, point)
		}
	}
	var left []string
	for text := range now {
		if !n.before[text] && !containsAny(text, living) && !ours(text) {
			left = append(left, text)
		}
	}
	slices.Sort(left)
	return left, nil
}

// ours reports whether a text is of host ports, whose elements have no pod's name.
func ours(text string) bool {
	return strings.HasPrefix(text, "elements of ")
}

func containsAny(text string, parts []string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return part != "" && strings.Contains(text, part) })
}
