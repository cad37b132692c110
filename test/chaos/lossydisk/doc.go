// Package lossydisk is a file system for tests that loses what was not synced, as a disk does when
// its machine loses power.
//
// Words. The live state is what programs read: all writes, synced or not. The disk state is what
// survives a crash for certain. Sync (fsync or fdatasync) of a file copies its pages to the disk
// state. Sync of a folder copies its names there.
//
// A crash ends the file system and mounts it again with the disk state and a random part of the
// rest, which a seed chooses:
//
//   - Each page that was not synced is old, new, or torn: a mixture of old and new sectors.
//   - The size of a file that was not synced is the old or the new one.
//   - Names survive in the order of their changes: the first few that were not synced, or none.
//     As POSIX has it, the sync of a file does not sync its name.
//
// Faults. Syncs can fail, once or for ever. As on Linux, the pages of a failed sync count as
// written afterwards: a later sync succeeds without them. Syncs can be slow, be skipped as a lying
// disk does, and the disk can be full.
//
// The content lies in memory. Programs other than the test mount nothing and need no rights; the
// test needs root and /dev/fuse (docs/adr/0078).
package lossydisk
