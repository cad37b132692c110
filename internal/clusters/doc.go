// Package clusters finds the clusters of this machine. Each data folder has a record, and a folder
// of links names them.
//
// Words:
//   - record: DATA/cluster.json. A knarr process writes it into its data folder. It holds the role,
//     pid, start time and the settings that other commands need (run folder, cgroup, addresses).
//     After a stop it remains, with pid 0.
//   - name: what users call a cluster. It is the base name of the data folder. If another folder
//     has that name, a hash of the path follows.
//   - link: /run/knarr/clusters/NAME, a symbolic link to the data folder. A restart of the machine
//     removes the links. The default data folder needs no link, because it is always checked.
//
// In: data folders, /proc. Out: records, and the state that follows from a record and /proc. Of
// knarr's packages it imports only internal/durable, so that every command can use it.
package clusters
