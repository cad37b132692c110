// Package snapshots makes, checks, keeps and opens snapshots of the store.
//
// Words. A snapshot is one file: a plain database file of etcd's format (.db), or an archive (.tar)
// of that file and the cluster's keys. A sealed snapshot (.age) is one of the two, encrypted for
// recipients of age. Its record is a small file beside it, NAME.json, with what the check found. A
// place is a folder or a bucket of S3 that holds snapshots by name. The content of a store is its
// revision, its number of keys, and a digest of all keys and values.
//
// In: a stream of the store's database (Take), or the name of a snapshot (Open). Out: files in
// places, and for a restore the plain database file and the keys' files.
//
// Take writes a snapshot beside its final name, restores it into a scratch store, compares the
// content, and only then gives it its name. So a killed process leaves no half file in a list.
// Keeper does this on a schedule and removes old snapshots; it never removes the newest good one.
//
// See docs/adr/0073-snapshots.md.
package snapshots
