// Package doctor looks at what knarr needs of a machine: before a server or a node starts, and for
// `knarr doctor`.
//
// Words. A check looks at one thing and gives a finding: what was found, how bad that is, and the
// remedy. A role is a part of knarr that needs something of the machine. A broken finding keeps the
// role from starting.
//
// In: the configuration, /proc, /sys, the folders and ports it names. Out: findings. A check takes
// milliseconds and leaves the machine as it was.
package doctor

import (
	"fmt"
	"strings"
	"sync"

	"github.com/knarr-project/knarr/internal/config"
)

// Level says how bad a finding is.
type Level int

// Levels, from good to bad.
const (
	Fine     Level = iota
	Degraded       // works, with something missing
	Broken         // the role does not work here
)

func (l Level) String() string { return [...]string{"ok", "degraded", "missing"}[l] }

// Finding is the result of one check.
type Finding struct {
	Level Level
	// What names the thing looked at, in a word or two.
	What  string
	Found string
	// Remedy says what to do about it; empty where nothing is wrong.
	Remedy string
}

// Role is a set of the parts of knarr that need something of the machine.
type Role uint8

// Roles.
const (
	// Server is the control plane: it needs its data folder and its port.
	Server Role = 1 << iota
	// Node runs pods: it needs root, cgroups, a network and more.
	Node
	// Runtime is the included container runtime of a node: it runs from the data folder.
	Runtime
	// Proxy makes Services reachable: it needs to write network rules.
	Proxy
)

// check is one thing that roles need.
type check struct {
	roles Role
	look  func(cfg *config.Config) Finding
}

// checks is everything that is looked at, in the order of `knarr doctor`.
var checks = []check{
	{Node | Proxy, func(*config.Config) Finding { return checkRoot(effectiveUser()) }},
	{Node, func(*config.Config) Finding { return checkSysAdmin(capabilities()) }},
	{Node | Proxy, func(*config.Config) Finding { return checkNetAdmin(capabilities()) }},
	{Node, func(*config.Config) Finding { return checkSysResource(capabilities()) }},
	{Node, func(cfg *config.Config) Finding { return machineCgroups().check(cfg.CgroupRoot) }},
	{Runtime, func(*config.Config) Finding { return checkOverlay("/proc/filesystems") }},
	{Server | Node, func(cfg *config.Config) Finding { return checkDataFolder(cfg.DataDir) }},
	{Runtime, func(cfg *config.Config) Finding { return checkPrograms(cfg.DataDir) }},
	{Node, func(cfg *config.Config) Finding { return checkRunFolder(cfg.RunDir) }},
	{Node, func(*config.Config) Finding { return checkForwarding("/proc/sys/net/ipv4/ip_forward") }},
	{Node | Proxy, func(*config.Config) Finding { return checkNftables(readGeneration) }},
	{Node, checkPodNetwork},
	{Node, func(*config.Config) Finding { return checkInotify("/proc/sys/fs/inotify/max_user_instances") }},
	{Server, func(cfg *config.Config) Finding { return checkPort("listen", cfg.Listen, cfg.DataDir) }},
	{Node, func(cfg *config.Config) Finding { return checkPort("kubelet-listen", cfg.KubeletListen, cfg.DataDir) }},
	{Node, func(*config.Config) Finding { return checkRoute("/proc/net/route") }},
}

// Examine makes the checks that matter for the roles, side by side, and gives the findings in a
// fixed order.
func Examine(cfg *config.Config, roles Role) []Finding {
	all := make([]Finding, len(checks))
	var wg sync.WaitGroup
	for i, c := range checks {
		if c.roles&roles != 0 {
			wg.Go(func() { all[i] = c.look(cfg) })
		}
	}
	wg.Wait()
	var findings []Finding
	for _, f := range all {
		if f.What != "" {
			findings = append(findings, f)
		}
	}
	return findings
}

// Refusal is the error of a start on a machine where something is missing.
type Refusal []Finding

// Error tells what is missing and the remedy, all in one block.
func (r Refusal) Error() string {
	var text strings.Builder
	text.WriteString("cannot start on this machine:")
	for _, f := range r {
		fmt.Fprintf(&text, "\n  missing: %s: %s\n  remedy:  %s", f.What, f.Found, f.Remedy)
	}
	return text.String()
}

// Refuse gives a Refusal if one of the findings is broken.
func Refuse(findings []Finding) error {
	var broken Refusal
	for _, f := range findings {
		if f.Level == Broken {
			broken = append(broken, f)
		}
	}
	if broken == nil {
		return nil
	}
	return broken
}

// Remarks is one short line about the findings that are degraded; empty without any.
func Remarks(findings []Finding) string {
	var names []string
	for _, f := range findings {
		if f.Level == Degraded {
			names = append(names, f.What+": "+f.Found)
		}
	}
	if names == nil {
		return ""
	}
	return "degraded: " + strings.Join(names, "; ") + " (`knarr doctor` tells the remedy)"
}
