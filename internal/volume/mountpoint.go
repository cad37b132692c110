package volume

// MountPoint is the location of one volume of a pod on the host, ready to be bind-mounted into
// containers.
type MountPoint struct {
	// HostPath is a folder on the host, or a file for hostPath volumes of file types.
	HostPath string
	// ReadOnly means that the volume must be mounted read-only, whatever the container's mount
	// requests.
	ReadOnly bool
	// SELinuxRelabel asks the runtime to relabel the volume for the container.
	SELinuxRelabel bool
	// Block means that HostPath is a block device, for volumeDevices.
	Block bool
}
