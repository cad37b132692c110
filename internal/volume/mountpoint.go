package volume

// MountPoint is where one volume of a pod lies on the host, ready to be bind-mounted into containers.
type MountPoint struct {
	// HostPath is a folder (or a file, for hostPath volumes of such types) on the host.
	HostPath string
	// ReadOnly is set when the volume can only be mounted read-only, whatever the container's mount says.
	ReadOnly bool
	// SELinuxRelabel asks the runtime to relabel the volume for the container.
	SELinuxRelabel bool
	// Block is set when HostPath is a block device, for volumeDevices.
	Block bool
}
