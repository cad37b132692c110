package spec

import (
	"fmt"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func itoa(i int64) string { return strconv.FormatInt(i, 10) }

// Paths of /proc and /sys that are hidden from containers or read-only by default.
var (
	maskedPaths = []string{"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap"}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// ImageUser is the user of an image's configuration. Both fields are empty if the image names no
// user; its processes then run as root (OCI image specification, config.User).
type ImageUser struct {
	UID  *int64
	Name string
}

// effective merges the container's security context over the pod's.
func effective(pod *corev1.Pod, c *corev1.Container) *corev1.SecurityContext {
	e := &corev1.SecurityContext{}
	if c.SecurityContext != nil {
		e = c.SecurityContext.DeepCopy()
	}
	p := pod.Spec.SecurityContext
	if p == nil {
		return e
	}
	if e.SELinuxOptions == nil {
		e.SELinuxOptions = p.SELinuxOptions
	}
	if e.RunAsUser == nil {
		e.RunAsUser = p.RunAsUser
	}
	if e.RunAsGroup == nil {
		e.RunAsGroup = p.RunAsGroup
	}
	if e.RunAsNonRoot == nil {
		e.RunAsNonRoot = p.RunAsNonRoot
	}
	if e.SeccompProfile == nil {
		e.SeccompProfile = p.SeccompProfile
	}
	if e.AppArmorProfile == nil {
		e.AppArmorProfile = p.AppArmorProfile
	}
	return e
}

// verifyNonRoot enforces runAsNonRoot. It refuses a container that would run as root or whose user
// cannot be verified (API reference, SecurityContext.runAsNonRoot).
func verifyNonRoot(pod *corev1.Pod, c *corev1.Container, e *corev1.SecurityContext, image ImageUser) error {
	if e.RunAsNonRoot == nil || !*e.RunAsNonRoot {
		return nil
	}
	where := fmt.Sprintf("(pod: %q, container: %s)", FullName(pod), c.Name)
	switch {
	case e.RunAsUser != nil && *e.RunAsUser == 0:
		return fmt.Errorf("container's runAsUser breaks non-root policy %s", where)
	case e.RunAsUser != nil:
		return nil
	case image.UID != nil && *image.UID != 0:
		return nil
	case image.UID == nil && image.Name != "":
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root %s", image.Name, where)
	}
	return fmt.Errorf("container has runAsNonRoot and image will run as root %s", where)
}

func securityContext(pod *corev1.Pod, c *corev1.Container, image ImageUser, o *ContainerOptions) (*runtimeapi.LinuxContainerSecurityContext, error) {
	e := effective(pod, c)
	if err := verifyNonRoot(pod, c, e, image); err != nil {
		return nil, err
	}
	s := &runtimeapi.LinuxContainerSecurityContext{
		Privileged:       e.Privileged != nil && *e.Privileged,
		ReadonlyRootfs:   e.ReadOnlyRootFilesystem != nil && *e.ReadOnlyRootFilesystem,
		NoNewPrivs:       e.AllowPrivilegeEscalation != nil && !*e.AllowPrivilegeEscalation,
		NamespaceOptions: namespaces(pod),
		SelinuxOptions:   selinux(e.SELinuxOptions),
	}
	if o.TargetID != "" {
		s.NamespaceOptions.Pid = runtimeapi.NamespaceMode_TARGET
		s.NamespaceOptions.TargetId = o.TargetID
	}
	switch {
	case e.RunAsUser != nil:
		s.RunAsUser = &runtimeapi.Int64Value{Value: *e.RunAsUser}
	case image.UID != nil:
		s.RunAsUser = &runtimeapi.Int64Value{Value: *image.UID}
	default:
		s.RunAsUsername = image.Name
	}
	if e.RunAsGroup != nil {
		s.RunAsGroup = &runtimeapi.Int64Value{Value: *e.RunAsGroup}
	}
	s.SupplementalGroups, s.SupplementalGroupsPolicy = groups(pod)
	if e.Capabilities != nil {
		s.Capabilities = &runtimeapi.Capability{}
		for _, a := range e.Capabilities.Add {
			s.Capabilities.AddCapabilities = append(s.Capabilities.AddCapabilities, string(a))
		}
		for _, d := range e.Capabilities.Drop {
			s.Capabilities.DropCapabilities = append(s.Capabilities.DropCapabilities, string(d))
		}
	}
	if e.ProcMount == nil || *e.ProcMount == corev1.DefaultProcMount {
		s.MaskedPaths, s.ReadonlyPaths = maskedPaths, readonlyPaths
	}
	s.Seccomp = seccomp(e.SeccompProfile, o.SeccompRoot, o.SeccompDefault)
	s.Apparmor = apparmor(e.AppArmorProfile)
	return s, nil
}

// groups are the supplemental groups of all processes of the pod: the pod's own and its fsGroup.
func groups(pod *corev1.Pod) ([]int64, runtimeapi.SupplementalGroupsPolicy) {
	p := pod.Spec.SecurityContext
	if p == nil {
		return nil, runtimeapi.SupplementalGroupsPolicy_Merge
	}
	var out []int64
	if p.FSGroup != nil {
		out = append(out, *p.FSGroup)
	}
	out = append(out, p.SupplementalGroups...)
	if p.SupplementalGroupsPolicy != nil && *p.SupplementalGroupsPolicy == corev1.SupplementalGroupsPolicyStrict {
		return out, runtimeapi.SupplementalGroupsPolicy_Strict
	}
	return out, runtimeapi.SupplementalGroupsPolicy_Merge
}

func seccomp(p *corev1.SeccompProfile, root string, byDefault bool) *runtimeapi.SecurityProfile {
	if p == nil {
		if byDefault {
			return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
		}
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
	}
	switch p.Type {
	case corev1.SeccompProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
	case corev1.SeccompProfileTypeLocalhost:
		if p.LocalhostProfile != nil {
			return &runtimeapi.SecurityProfile{
				ProfileType:  runtimeapi.SecurityProfile_Localhost,
				LocalhostRef: filepath.Join(root, filepath.Clean("/"+*p.LocalhostProfile)),
			}
		}
	}
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
}

func apparmor(p *corev1.AppArmorProfile) *runtimeapi.SecurityProfile {
	if p == nil {
		return nil
	}
	switch p.Type {
	case corev1.AppArmorProfileTypeRuntimeDefault:
		return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
	case corev1.AppArmorProfileTypeLocalhost:
		if p.LocalhostProfile != nil {
			return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: *p.LocalhostProfile}
		}
	}
	return &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined}
}

func selinux(o *corev1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

// namespaces computes which Linux namespaces the pod's containers share with each other or with the
// node.
func namespaces(pod *corev1.Pod) *runtimeapi.NamespaceOption {
	n := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}
	if pod.Spec.HostNetwork {
		n.Network = runtimeapi.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		n.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case pod.Spec.HostPID:
		n.Pid = runtimeapi.NamespaceMode_NODE
	case pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace:
		n.Pid = runtimeapi.NamespaceMode_POD
	}
	return n
}
