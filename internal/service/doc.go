// Package service makes knarr a service of the machine: a unit of systemd, or an init script where
// another service manager runs.
//
// Words:
//   - service: a knarr command line that the machine starts when it boots and after a crash.
//   - service manager: systemd, OpenRC or the SysV scripts of /etc/init.d.
//   - definition: the unit or the init script, as text. Its first comment marks it as knarr's.
//
// In: a command line without secrets, and the secrets as the content of a configuration file.
// Out: the definition, the configuration file (mode 0600), and commands to the service manager.
//
// A definition without the mark is never replaced or removed. Stopping a service ends knarr's
// process only: containerd, its shims and the pods keep running. See ADR 0059.
package service
