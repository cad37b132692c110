package pleg

import (
	"maps"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubelettypes "k8s.io/kubelet/pkg/types"
)

// Container is one attempt to run a container of the pod.
type Container struct {
	*runtimeapi.ContainerStatus
	SandboxID string
	// learned is when the runtime is known to have had the container. Only a listing requested
	// later can report it as removed; an earlier one may predate the container.
	learned time.Time
}

// Name is the container's name in the pod's spec.
func (c *Container) Name() string { return c.GetMetadata().GetName() }

// Attempt counts from 0; it is the container's restart count.
func (c *Container) Attempt() int { return int(c.GetMetadata().GetAttempt()) }

// Running reports whether the container's process is alive, as far as known.
func (c *Container) Running() bool {
	return c != nil && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// Exited reports whether the container's process has ended.
func (c *Container) Exited() bool {
	return c != nil && c.State == runtimeapi.ContainerState_CONTAINER_EXITED
}

// FinishedTime is when an exited container ended.
func (c *Container) FinishedTime() time.Time { return time.Unix(0, c.FinishedAt) }

// Sandbox is one pod sandbox of the pod.
type Sandbox struct {
	*runtimeapi.PodSandboxStatus
	learned time.Time // as in Container
}

// Ready reports whether containers can run in the sandbox.
func (s *Sandbox) Ready() bool {
	return s != nil && s.State == runtimeapi.PodSandboxState_SANDBOX_READY
}

// IPs are the pod's addresses, the primary one first.
func (s *Sandbox) IPs() []string {
	if s == nil || s.Network == nil || s.Network.Ip == "" {
		return nil
	}
	ips := []string{s.Network.Ip}
	for _, ip := range s.Network.AdditionalIps {
		ips = append(ips, ip.Ip)
	}
	return ips
}

// Update is news about one pod.
type Update struct {
	UID             types.UID
	Namespace, Name string
	Sandboxes       []*runtimeapi.PodSandboxStatus
	Containers      []*runtimeapi.ContainerStatus
	// SandboxOf maps container ids to sandbox ids.
	SandboxOf map[string]string
	// Removed lists containers and sandboxes that the runtime has removed.
	Removed []string
	// Complete means that the update holds the whole pod: anything known before Asked and missing
	// here is gone.
	Complete bool
	// Asked is when the listing was requested.
	Asked time.Time
}

// Observed is what the runtime has of one pod. One goroutine owns it.
//
// States only advance: an update older than what is known neither revives an exited container nor
// brings back a removed one.
type Observed struct {
	Sandboxes  map[string]*Sandbox
	Containers map[string]*Container
	removed    map[string]time.Time // since when each id is known to be gone
}

// removedIDRetention is how long the ids of removed containers are remembered. No listing or event
// takes that long, and a container that crashes for months would otherwise leave thousands of ids.
const removedIDRetention = time.Hour

// NewObserved returns the state of a pod of which the runtime has nothing.
func NewObserved() *Observed {
	return &Observed{Sandboxes: map[string]*Sandbox{}, Containers: map[string]*Container{}, removed: map[string]time.Time{}}
}

// Merge applies an update and reports whether anything changed.
func (o *Observed) Merge(u Update) bool {
	changed := false
	for _, s := range u.Sandboxes {
		changed = o.MergeSandbox(s, u.Asked) || changed
	}
	for _, c := range u.Containers {
		changed = o.MergeContainer(c, u.SandboxOf[c.Id], u.Asked) || changed
	}
	for _, id := range u.Removed {
		changed = o.Remove(id, u.Asked) || changed
	}
	if !u.Complete {
		return changed
	}
	seen := map[string]bool{}
	for _, s := range u.Sandboxes {
		seen[s.Id] = true
	}
	for _, c := range u.Containers {
		seen[c.Id] = true
	}
	for id, s := range o.Sandboxes {
		if !seen[id] && s.learned.Before(u.Asked) {
			changed = o.Remove(id, u.Asked) || changed
		}
	}
	for id, c := range o.Containers {
		if !seen[id] && c.learned.Before(u.Asked) {
			changed = o.Remove(id, u.Asked) || changed
		}
	}
	return changed
}

// Remove forgets a container or sandbox that is known to be gone at the given time. The runtime
// does not reuse ids.
func (o *Observed) Remove(id string, now time.Time) bool {
	maps.DeleteFunc(o.removed, func(_ string, since time.Time) bool { return now.Sub(since) > removedIDRetention })
	o.removed[id] = now
	_, c := o.Containers[id]
	_, s := o.Sandboxes[id]
	delete(o.Containers, id)
	delete(o.Sandboxes, id)
	return c || s
}

// MergeSandbox applies one sandbox's status. learned is when the sandbox is known to have existed;
// for a listing, when the listing was requested.
func (o *Observed) MergeSandbox(s *runtimeapi.PodSandboxStatus, learned time.Time) bool {
	if s == nil || o.isRemoved(s.Id) {
		return false
	}
	if old := o.Sandboxes[s.Id]; old != nil {
		learned = later(learned, old.learned)
		if !old.Ready() || old.State == s.State && len(old.IPs()) >= len((&Sandbox{PodSandboxStatus: s}).IPs()) {
			o.Sandboxes[s.Id] = &Sandbox{PodSandboxStatus: old.PodSandboxStatus, learned: learned}
			return false
		}
	}
	o.Sandboxes[s.Id] = &Sandbox{PodSandboxStatus: s, learned: learned}
	return true
}

func (o *Observed) isRemoved(id string) bool {
	_, ok := o.removed[id]
	return ok
}

// later returns the later of two times at which the runtime had something; updates can arrive out
// of order.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// SandboxStopped notes that a sandbox has been stopped. Statuses are shared, so it replaces the
// status instead of changing it.
func (o *Observed) SandboxStopped(id string) {
	if s := o.Sandboxes[id]; s != nil {
		o.Sandboxes[id] = &Sandbox{learned: s.learned, PodSandboxStatus: &runtimeapi.PodSandboxStatus{
			Id: s.Id, Metadata: s.Metadata, State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY, CreatedAt: s.CreatedAt, Network: s.Network,
			Linux: s.Linux, Labels: s.Labels, Annotations: s.Annotations, RuntimeHandler: s.RuntimeHandler,
		}}
	}
}

// rank orders a container's states. UNKNOWN can become any state.
var rank = map[runtimeapi.ContainerState]int{
	runtimeapi.ContainerState_CONTAINER_UNKNOWN: 0,
	runtimeapi.ContainerState_CONTAINER_CREATED: 1,
	runtimeapi.ContainerState_CONTAINER_RUNNING: 2,
	runtimeapi.ContainerState_CONTAINER_EXITED:  3,
}

// MergeContainer applies one container's status. learned is as for MergeSandbox.
func (o *Observed) MergeContainer(c *runtimeapi.ContainerStatus, sandboxID string, learned time.Time) bool {
	if c == nil || o.isRemoved(c.Id) || c.Metadata == nil {
		return false
	}
	if old := o.Containers[c.Id]; old != nil {
		if sandboxID == "" {
			sandboxID = old.SandboxID
		}
		learned = later(learned, old.learned)
		if rank[c.State] < rank[old.State] || c.State == old.State && c.ExitCode == old.ExitCode && c.Reason == old.Reason && c.StartedAt == old.StartedAt &&
			c.FinishedAt == old.FinishedAt && old.SandboxID == sandboxID && c.Resources.String() == old.Resources.String() {
			o.Containers[c.Id] = &Container{ContainerStatus: old.ContainerStatus, SandboxID: old.SandboxID, learned: learned}
			return false
		}
	}
	o.Containers[c.Id] = &Container{ContainerStatus: c, SandboxID: sandboxID, learned: learned}
	return true
}

// Sandbox returns the newest sandbox, or nil.
func (o *Observed) Sandbox() *Sandbox {
	var newest *Sandbox
	for _, s := range o.Sandboxes {
		if newest == nil || s.CreatedAt > newest.CreatedAt ||
			s.CreatedAt == newest.CreatedAt && s.Metadata.GetAttempt() > newest.Metadata.GetAttempt() {
			newest = s
		}
	}
	return newest
}

// Attempts returns the containers of one name, newest first.
func (o *Observed) Attempts(name string) []*Container {
	var out []*Container
	for _, c := range o.Containers {
		if c.Name() == name {
			out = append(out, c)
		}
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].Attempt() != out[j].Attempt() {
			return out[i].Attempt() > out[j].Attempt()
		}
		return out[i].CreatedAt > out[j].CreatedAt
	})
	return out
}

// Latest returns the newest container of that name, or nil.
func (o *Observed) Latest(name string) *Container {
	if all := o.Attempts(name); len(all) > 0 {
		return all[0]
	}
	return nil
}

// LatestIn returns the newest container of that name in one sandbox, or nil.
func (o *Observed) LatestIn(name, sandboxID string) *Container {
	for _, c := range o.Attempts(name) {
		if c.SandboxID == sandboxID || c.SandboxID == "" {
			return c
		}
	}
	return nil
}

// AnyRunning reports whether any container's process is alive.
func (o *Observed) AnyRunning() bool {
	for _, c := range o.Containers {
		if c.Running() || c.State == runtimeapi.ContainerState_CONTAINER_UNKNOWN {
			return true
		}
	}
	return false
}

// PodOf reads the pod's identity from a container's or sandbox's labels.
func PodOf(labels map[string]string) (uid types.UID, namespace, name string) {
	return types.UID(kubelettypes.GetPodUID(labels)), kubelettypes.GetPodNamespace(labels), kubelettypes.GetPodName(labels)
}
