// Package clusters knows the clusters of this machine: each data folder has a record, and a folder
// of links names them.
//
// Words:
//   - record: DATA/cluster.json. A process of knarr writes it into the data folder that it works
//     on: its role, pid, start time and the settings that other commands need (run folder, cgroup,
//     addresses). It stays after a stop, with pid 0.
//   - name: how users call a cluster. It is the base name of the data folder; where another folder
//     has that name already, a hash of the path follows.
//   - link: /run/knarr/clusters/NAME, a symbolic link to the data folder. The links go with a
//     restart of the machine; the default data folder is always looked at, so its cluster is found
//     without one.
//
// In: data folders, /proc. Out: records, and the state that follows from a record and /proc. The
// package depends on nothing of knarr but internal/durable, so that every command may ask it.
package clusters
