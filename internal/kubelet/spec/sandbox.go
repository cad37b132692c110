package spec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// SandboxOptions holds everything that a sandbox's configuration needs in addition to the pod.
type SandboxOptions struct {
	Attempt      uint32
	LogDir       string
	CgroupParent string
	DNS          DNS
	Hostname     string
	SeccompRoot  string
	// UserNamespace is the pod's id mapping, or nil if the pod uses the host's users.
	UserNamespace *runtimeapi.UserNamespace
	Machine       Machine
}

// Sandbox builds the CRI configuration of the pod's sandbox.
func Sandbox(pod *corev1.Pod, o SandboxOptions) *runtimeapi.PodSandboxConfig {
	c := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: o.Attempt,
		},
		Hostname:     o.Hostname,
		LogDirectory: o.LogDir,
		DnsConfig:    o.DNS.CRI(),
		Labels:       podLabels(pod),
		Annotations:  pod.Annotations,
	}
	if pod.Spec.HostNetwork {
		c.Hostname = ""
	} else {
		c.PortMappings = portMappings(pod)
	}
	c.Linux = &runtimeapi.LinuxPodSandboxConfig{
		CgroupParent: o.CgroupParent,
		Sysctls:      sysctls(pod),
		SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: namespaces(pod),
			Privileged:       privileged(pod),
		},
	}
	sc := c.Linux.SecurityContext
	sc.Seccomp = pauseSeccomp(sc.NamespaceOptions)
	sc.NamespaceOptions.UsernsOptions = o.UserNamespace
	if p := pod.Spec.SecurityContext; p != nil {
		if p.RunAsUser != nil {
			sc.RunAsUser = &runtimeapi.Int64Value{Value: *p.RunAsUser}
		}
		if p.RunAsGroup != nil && p.RunAsUser != nil {
			sc.RunAsGroup = &runtimeapi.Int64Value{Value: *p.RunAsGroup}
		}
		sc.SelinuxOptions = selinux(p.SELinuxOptions)
		if p.SeccompProfile != nil {
			sc.Seccomp = seccomp(p.SeccompProfile, o.SeccompRoot, true)
		}
	}
	sc.SupplementalGroups, sc.SupplementalGroupsPolicy = groups(pod)
	c.Linux.Resources, c.Linux.Overhead = sandboxResources(pod, o.Machine)
	return c
}

// pauseSeccomp is the seccomp profile of the pause process. The process never uses a system call
// that the default profile forbids.
//
// It gets the default profile where other processes can reach it through a shared process
// namespace. Alone in its own namespace it can only wait, and compiling the profile for it would be
// a tenth of the CPU time of starting a pod.
func pauseSeccomp(n *runtimeapi.NamespaceOption) *runtimeapi.SecurityProfile {
	if n.Pid == runtimeapi.NamespaceMode_CONTAINER {
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	}
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
}

// sandboxResources are the resources of the whole pod, for runtimes that size a virtual machine by
// them.
func sandboxResources(pod *corev1.Pod, m Machine) (all, overhead *runtimeapi.LinuxContainerResources) {
	opts := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	whole := func(requests, limits corev1.ResourceList) *runtimeapi.LinuxContainerResources {
		r := &runtimeapi.LinuxContainerResources{
			CpuShares: Shares(requests.Cpu().MilliValue()), MemoryLimitInBytes: limits.Memory().Value(),
		}
		if !m.NoCFSQuota {
			r.CpuPeriod, r.CpuQuota = m.period(), QuotaOf(limits.Cpu().MilliValue(), m.period())
		}
		return r
	}
	all = whole(resourcehelper.PodRequests(pod, opts), resourcehelper.PodLimits(pod, opts))
	if pod.Spec.Overhead != nil {
		overhead = whole(pod.Spec.Overhead, pod.Spec.Overhead)
	}
	return all, overhead
}

func privileged(pod *corev1.Pod) bool {
	is := func(c *corev1.Container) bool {
		return c.SecurityContext != nil && c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged
	}
	for i := range pod.Spec.InitContainers {
		if is(&pod.Spec.InitContainers[i]) {
			return true
		}
	}
	for i := range pod.Spec.Containers {
		if is(&pod.Spec.Containers[i]) {
			return true
		}
	}
	return false
}

func portMappings(pod *corev1.Pod) []*runtimeapi.PortMapping {
	var out []*runtimeapi.PortMapping
	add := func(c *corev1.Container) {
		for _, p := range c.Ports {
			out = append(out, &runtimeapi.PortMapping{
				Protocol: protocol(p.Protocol), ContainerPort: p.ContainerPort, HostPort: p.HostPort, HostIp: p.HostIP,
			})
		}
	}
	for i := range pod.Spec.InitContainers {
		if IsSidecar(&pod.Spec.InitContainers[i]) {
			add(&pod.Spec.InitContainers[i])
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return out
}

func protocol(p corev1.Protocol) runtimeapi.Protocol {
	switch p {
	case corev1.ProtocolUDP:
		return runtimeapi.Protocol_UDP
	case corev1.ProtocolSCTP:
		return runtimeapi.Protocol_SCTP
	}
	return runtimeapi.Protocol_TCP
}

func sysctls(pod *corev1.Pod) map[string]string {
	if pod.Spec.SecurityContext == nil || len(pod.Spec.SecurityContext.Sysctls) == 0 {
		return nil
	}
	out := map[string]string{}
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		out[strings.ReplaceAll(s.Name, "/", ".")] = s.Value
	}
	return out
}

// Hostname returns the pod's host name and domain as its containers see them.
func Hostname(pod *corev1.Pod, clusterDomain string) (hostname, domain string, err error) {
	if pod.Spec.HostnameOverride != nil {
		return *pod.Spec.HostnameOverride, "", nil
	}
	hostname = pod.Name
	if pod.Spec.Hostname != "" {
		hostname = pod.Spec.Hostname
	}
	if len(hostname) > 63 {
		hostname = strings.TrimRight(hostname[:63], "-.")
	}
	if pod.Spec.Subdomain != "" {
		domain = fmt.Sprintf("%s.%s.svc.%s", pod.Spec.Subdomain, pod.Namespace, clusterDomain)
	}
	return hostname, domain, nil
}

// SandboxHostname returns the kernel's host name in the pod. With setHostnameAsFQDN it is the fully
// qualified name.
func SandboxHostname(pod *corev1.Pod, clusterDomain string) (string, error) {
	hostname, domain, err := Hostname(pod, clusterDomain)
	if err != nil {
		return "", err
	}
	if pod.Spec.SetHostnameAsFQDN != nil && *pod.Spec.SetHostnameAsFQDN && domain != "" {
		fqdn := hostname + "." + domain
		if len(fqdn) > 64 {
			return "", fmt.Errorf("failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (64 characters is the max, %d characters requested)", fqdn, len(fqdn))
		}
		return fqdn, nil
	}
	return hostname, nil
}
