// Package machine reads the layout of a machine's CPUs, memory and huge pages.
//
// In: the kernel's files below a root folder, "/" or a made-up tree of a test
// (Documentation/ABI/stable/sysfs-devices-node, Documentation/admin-guide/cputopology.rst).
//
// Out: Layout, plain data that never changes. CPUs that are offline are not part of it.
package machine
