package spec

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/volume"
)

// ContainerOptions holds everything that a container's configuration needs in addition to its spec.
type ContainerOptions struct {
	Attempt       int
	Image         string // as in the spec
	ImageRef      string // as the runtime resolved it
	ImageUser     ImageUser
	PodDir        string
	Volumes       map[string]volume.MountPoint
	Facts         Facts
	Sources       Sources
	ClusterDomain string
	SeccompRoot   string
	// SeccompDefault makes RuntimeDefault the profile of containers without a profile of their own.
	SeccompDefault bool
	Machine        Machine
	// TargetID is the container whose process namespace an ephemeral container joins.
	TargetID string
	// UserNamespace is the pod's id mapping, or nil.
	UserNamespace *runtimeapi.UserNamespace
	// SubPath prepares a sub path of a volume and returns its path on the host.
	SubPath func(ctx context.Context, mountIndex int, mount corev1.VolumeMount, from volume.MountPoint, subPath string) (string, error)
	// ImageVolumes maps the names of image volumes to images in the runtime.
	ImageVolumes map[string]*runtimeapi.ImageSpec
	// RecursiveReadOnly reports whether the runtime supports recursive read-only mounts.
	RecursiveReadOnly bool
	// Devices are the container's devices; may be nil.
	Devices *Devices
}

// Container builds a container's CRI configuration.
func Container(ctx context.Context, pod *corev1.Pod, c *corev1.Container, o ContainerOptions) (*runtimeapi.ContainerConfig, error) {
	envs, values, err := Env(ctx, pod, c, o.Sources, o.Facts)
	if err != nil {
		return nil, err
	}
	lookup := func(name string) (string, bool) { v, ok := values[name]; return v, ok }
	security, err := securityContext(pod, c, o.ImageUser, &o)
	if err != nil {
		return nil, err
	}
	if o.UserNamespace != nil {
		security.NamespaceOptions.UsernsOptions = o.UserNamespace
	}
	mounts, err := mounts(ctx, pod, c, lookup, &o)
	if err != nil {
		return nil, err
	}
	devices, err := devices(c, o.Volumes)
	if err != nil {
		return nil, err
	}
	config := &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(o.Attempt)},
		Image:       &runtimeapi.ImageSpec{Image: o.ImageRef, UserSpecifiedImage: o.Image},
		Command:     expandAll(c.Command, lookup),
		Args:        expandAll(c.Args, lookup),
		WorkingDir:  c.WorkingDir,
		Envs:        envs,
		Mounts:      mounts,
		Devices:     devices,
		Labels:      containerLabels(pod, c),
		Annotations: containerAnnotations(pod, c, o.Attempt),
		LogPath:     LogPath(c.Name, o.Attempt),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		Linux:       &runtimeapi.LinuxContainerConfig{Resources: Resources(pod, c, o.Machine), SecurityContext: security},
	}
	o.Devices.apply(config)
	if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		config.StopSignal = runtimeapi.Signal(runtimeapi.Signal_value[string(*c.Lifecycle.StopSignal)])
	}
	return config, nil
}

func expandAll(in []string, lookup func(string) (string, bool)) []string {
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = Expand(s, lookup)
	}
	return out
}

func mounts(ctx context.Context, pod *corev1.Pod, c *corev1.Container, lookup func(string) (string, bool), o *ContainerOptions) ([]*runtimeapi.Mount, error) {
	var out []*runtimeapi.Mount
	ownHosts := false
	for i, vm := range c.VolumeMounts {
		ownHosts = ownHosts || filepath.Clean(vm.MountPath) == "/etc/hosts"
		if image, ok := o.ImageVolumes[vm.Name]; ok {
			out = append(out, &runtimeapi.Mount{ContainerPath: vm.MountPath, Image: image, ImageSubPath: vm.SubPath, Readonly: true})
			continue
		}
		m, err := volumeMount(ctx, i, vm, lookup, o)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	if !ownHosts && len(o.Facts.PodIPs) > 0 {
		hosts, err := HostsFile(o.PodDir, pod, o.Facts.PodIPs, o.ClusterDomain)
		if err != nil {
			return nil, fmt.Errorf("write the pod's hosts file: %w", err)
		}
		out = append(out, &runtimeapi.Mount{ContainerPath: "/etc/hosts", HostPath: hosts, SelinuxRelabel: true})
	}
	if c.TerminationMessagePath != "" {
		path, err := terminationFile(o.PodDir, c.Name, o.Attempt)
		if err != nil {
			return nil, fmt.Errorf("make the termination message file: %w", err)
		}
		out = append(out, &runtimeapi.Mount{ContainerPath: c.TerminationMessagePath, HostPath: path, SelinuxRelabel: true})
	}
	if o.UserNamespace != nil {
		for _, m := range out {
			if m.Image == nil {
				m.UidMappings, m.GidMappings = o.UserNamespace.Uids, o.UserNamespace.Gids
			}
		}
	}
	return out, nil
}

func volumeMount(ctx context.Context, i int, vm corev1.VolumeMount, lookup func(string) (string, bool), o *ContainerOptions) (*runtimeapi.Mount, error) {
	from, ok := o.Volumes[vm.Name]
	if !ok {
		return nil, fmt.Errorf("cannot find volume %q to mount into container", vm.Name)
	}
	host := from.HostPath
	subPath := vm.SubPath
	if vm.SubPathExpr != "" {
		missing := ""
		subPath = Expand(vm.SubPathExpr, func(name string) (string, bool) {
			v, ok := lookup(name)
			if !ok && missing == "" {
				missing = name
			}
			return v, ok
		})
		if missing != "" {
			return nil, fmt.Errorf("missing value for %q", missing)
		}
	}
	if subPath != "" {
		if filepath.IsAbs(subPath) {
			return nil, fmt.Errorf("error SubPath `%s` must not be an absolute path", subPath)
		}
		for _, part := range strings.Split(subPath, "/") {
			if part == ".." {
				return nil, fmt.Errorf("unable to provision SubPath `%s`: must not contain '..'", subPath)
			}
		}
		var err error
		if host, err = o.SubPath(ctx, i, vm, from, subPath); err != nil {
			return nil, fmt.Errorf("failed to prepare subPath for volumeMount %q of container: %w", vm.Name, err)
		}
	}
	m := &runtimeapi.Mount{
		ContainerPath: vm.MountPath, HostPath: host, Readonly: vm.ReadOnly || from.ReadOnly, SelinuxRelabel: from.SELinuxRelabel,
		Propagation: propagation(vm.MountPropagation),
	}
	if !strings.HasPrefix(m.ContainerPath, "/") {
		m.ContainerPath = "/" + m.ContainerPath
	}
	if vm.ReadOnly && vm.RecursiveReadOnly != nil {
		switch *vm.RecursiveReadOnly {
		case corev1.RecursiveReadOnlyIfPossible:
			m.RecursiveReadOnly = o.RecursiveReadOnly
		case corev1.RecursiveReadOnlyEnabled:
			if !o.RecursiveReadOnly {
				return nil, fmt.Errorf("recursive read-only mount is not supported by the runtime handler")
			}
			m.RecursiveReadOnly = true
		}
	}
	return m, nil
}

func propagation(p *corev1.MountPropagationMode) runtimeapi.MountPropagation {
	if p != nil {
		switch *p {
		case corev1.MountPropagationHostToContainer:
			return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
		case corev1.MountPropagationBidirectional:
			return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
		}
	}
	return runtimeapi.MountPropagation_PROPAGATION_PRIVATE
}

// TerminationFile is the path on the host of a container's termination message.
func TerminationFile(podDir, container string, attempt int) string {
	return filepath.Join(podDir, "containers", container, fmt.Sprintf("%08x", attempt))
}

// terminationFile creates the file for a container's termination message.
func terminationFile(podDir, container string, attempt int) (string, error) {
	path := TerminationFile(podDir, container, attempt)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return "", err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666)
	if err != nil {
		return "", err
	}
	defer f.Close()
	// Any user of the container may write, so undo the umask.
	return path, f.Chmod(0o666)
}
