package volume

import (
	"os"

	corev1 "k8s.io/api/core/v1"
)

// seLinuxEnabled reports whether the machine uses SELinux.
func seLinuxEnabled() bool {
	_, err := os.Stat("/sys/fs/selinux/enforce")
	return err == nil
}

// seLinuxLabel is the label of all files of the volume, to be mounted with the option "context". ""
// means that the runtime labels the files one by one. A label of the whole volume needs a driver
// that supports it (CSIDriver.spec.seLinuxMount), a volume for one pod, and one label in the pod.
func (v *csiVolume) seLinuxLabel(enabled bool) string {
	if !enabled || v.block || v.object == nil || v.object.Spec.SELinuxMount == nil || !*v.object.Spec.SELinuxMount || v.persistent == nil {
		return ""
	}
	modes := v.persistent.Spec.AccessModes
	if len(modes) != 1 || modes[0] != corev1.ReadWriteOncePod {
		return ""
	}
	options := podLabel(v.pod)
	if options == nil || options.Level == "" {
		return ""
	}
	or := func(value, otherwise string) string {
		if value == "" {
			return otherwise
		}
		return value
	}
	// The type of a file is not the type of the process, so the pod's type does not count.
	return or(options.User, "system_u") + ":" + or(options.Role, "object_r") + ":container_file_t:" + options.Level
}

// podLabel returns the SELinux options that all containers of the pod share, or nil.
func podLabel(pod *corev1.Pod) *corev1.SELinuxOptions {
	var own *corev1.SELinuxOptions
	if pod.Spec.SecurityContext != nil {
		own = pod.Spec.SecurityContext.SELinuxOptions
	}
	var found *corev1.SELinuxOptions
	for _, containers := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range containers {
			options := own
			if c := containers[i].SecurityContext; c != nil && c.SELinuxOptions != nil {
				options = c.SELinuxOptions
			}
			if options == nil || found != nil && *found != *options {
				return nil
			}
			found = options
		}
	}
	return found
}
