// Package doctor checks whether a machine meets knarr's requirements: before a server or a node
// starts, and for `knarr doctor`.
//
// Words. A check examines one thing and returns a finding: what was found, how bad that is, and the
// remedy. A role is a part of knarr with requirements on the machine. A broken finding keeps the
// role from starting.
//
// In: the configuration, /proc, /sys, and the configured folders and ports. Out: findings. A check
// takes milliseconds and leaves the machine unchanged. Speed takes up to some seconds.
package doctor

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/knarr-project/knarr/internal/config"
)

// Level is the severity of a finding.
type Level int

// Levels, from good to bad.
const (
	Fine     Level = iota
	Degraded       // works with restrictions
	Broken         // the role does not work here
)

func (l Level) String() string { return [...]string{"ok", "degraded", "missing"}[l] }

// Finding is the result of one check.
type Finding struct {
	Level Level
	// What names the examined thing in a word or two.
	What  string
	Found string
	// Remedy is empty if nothing is wrong.
	Remedy string
}

// Role is a set of parts of knarr with requirements on the machine.
type Role uint8

// Roles.
const (
	// Server is the control plane. It needs its data folder and its port.
	Server Role = 1 << iota
	// Node runs pods. It needs root, cgroups, a network and more.
	Node
	// Runtime is the included container runtime of a node. It runs from the data folder.
	Runtime
	// Proxy makes Services reachable. It needs to write network rules.
	Proxy
	// Speed measures the store's disk. That takes more than milliseconds, so a start does without.
	Speed
)

// check is one requirement of some roles.
type check struct {
	roles Role
	look  func(cfg *config.Config) Finding
}

// checks lists all checks in the order of `knarr doctor`.
var checks = []check{
	{Node | Proxy, func(*config.Config) Finding { return checkRoot(effectiveUser()) }},
	{Node, func(*config.Config) Finding { return checkSysAdmin(capabilities()) }},
	{Node | Proxy, func(*config.Config) Finding { return checkNetAdmin(capabilities()) }},
	{Node, func(*config.Config) Finding { return checkSysResource(capabilities()) }},
	{Node, func(cfg *config.Config) Finding { return machineCgroups().check(cfg.CgroupRoot) }},
	{Runtime, func(*config.Config) Finding { return checkOverlay("/proc/filesystems") }},
	{Server | Node, func(cfg *config.Config) Finding { return checkDataFolder(cfg.DataDir) }},
	{Server, checkStore},
	{Speed, checkStoreDisk},
	{Server, func(cfg *config.Config) Finding { return checkAuthorities(cfg, time.Now()) }},
	{Runtime, func(cfg *config.Config) Finding { return checkPrograms(cfg.DataDir) }},
	{Node, checkVolumeSizes},
	{Node, func(cfg *config.Config) Finding { return checkRunFolder(cfg.RunDir) }},
	{Node, func(*config.Config) Finding { return checkForwarding("/proc/sys/net/ipv4/ip_forward") }},
	{Node | Proxy, func(*config.Config) Finding { return checkNftables(readGeneration) }},
	{Node, checkPodNetwork},
	{Node, func(*config.Config) Finding { return checkInotify("/proc/sys/fs/inotify/max_user_instances") }},
	{Server, func(cfg *config.Config) Finding { return checkPort("listen", cfg.Listen, cfg.DataDir) }},
	{Node, func(cfg *config.Config) Finding { return checkPort("kubelet-listen", cfg.KubeletListen, cfg.DataDir) }},
	{Node, func(*config.Config) Finding { return checkRoute("/proc/net/route") }},
}

// Examine runs the roles' checks concurrently and returns the findings in a fixed order.
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

// Refusal is the error of a start on a machine that lacks a requirement.
type Refusal []Finding

// Error describes what is missing, and the remedies, in one block.
func (r Refusal) Error() string {
	var text strings.Builder
	text.WriteString("cannot start on this machine:")
	for _, f := range r {
		fmt.Fprintf(&text, "\n  missing: %s: %s\n  remedy:  %s", f.What, f.Found, f.Remedy)
	}
	return text.String()
}

// Refuse returns a Refusal if a finding is broken.
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

// Remarks summarizes the degraded findings in one line, or returns "".
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
