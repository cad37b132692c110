// Package driver is a CSI driver for tests. It keeps volumes on the disk of one node: a volume with
// a file system is a folder, a block volume is a file behind a loop device.
//
// It takes the flags that upstream's end-to-end tests give to their driver "hostpathplugin", and
// logs each call as these tests expect it. With a proxy endpoint it serves nothing itself: it joins
// each connection to its socket with a connection to a TCP port, where a test answers the calls.
//
// Layout below the state folder:
//
//	state.json     the volumes and snapshots
//	volumes/ID     the content of a volume: a folder or a file
//	snapshots/ID   the content of a snapshot
package driver
