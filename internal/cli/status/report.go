// Package status looks at a cluster of this machine: its process, its parts, what it uses, and what
// to type next.
package status

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/knarr-project/knarr/internal/cli/logs"
	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/version"
)

// Health is how a part is.
type Health string

// A part is well, not well, or cannot be looked at by this user.
const (
	Fine    Health = "ok"
	Bad     Health = "failing"
	Unknown Health = "unknown"
)

// Part is one part of a cluster.
type Part struct {
	Name   string `json:"name"`
	Health Health `json:"health"`
	Text   string `json:"text"`
}

// Process is what a process uses.
type Process struct {
	Name string `json:"name"`
	PID  int    `json:"pid"`
	// RSS and Private are bytes of memory: with the pages of its program, and without.
	RSS     int64 `json:"rssBytes"`
	Private int64 `json:"privateBytes"`
}

// Disk is the use of the data folder and of the file system that it is on, in bytes.
type Disk struct {
	Folder int64 `json:"folderBytes"`
	// Partial: the folder was too large to be added up; Folder is what was found.
	Partial bool  `json:"partial,omitempty"`
	Free    int64 `json:"freeBytes"`
	Total   int64 `json:"totalBytes"`
}

// Certificate is one of the data folder's.
type Certificate struct {
	Name    string    `json:"name"`
	Expires time.Time `json:"expires"`
}

// Pods counts pods by phase: all pods of a cluster's server, this machine's for a node.
type Pods struct {
	Total     int `json:"total"`
	Running   int `json:"running"`
	Pending   int `json:"pending"`
	Succeeded int `json:"succeeded"`
	Failed    int `json:"failed"`
}

// Nodes counts the cluster's nodes.
type Nodes struct {
	Total int `json:"total"`
	Ready int `json:"ready"`
}

// Report is the whole of `knarr status`.
type Report struct {
	Name       string         `json:"name"`
	DataDir    string         `json:"dataDir"`
	Role       string         `json:"role"`
	State      clusters.State `json:"state"`
	Healthy    bool           `json:"healthy"`
	Since      time.Time      `json:"since"`
	Cause      string         `json:"cause,omitempty"`
	Rebooted   bool           `json:"rebooted,omitempty"`
	PID        int            `json:"pid,omitempty"`
	Detached   bool           `json:"detached"`
	Version    string         `json:"version"`
	Kubernetes string         `json:"kubernetes"`
	// Installed is this binary's version where the running one is another.
	Installed  string        `json:"installed,omitempty"`
	URL        string        `json:"url,omitempty"`
	Others     string        `json:"urlForOthers,omitempty"`
	Kubeconfig string        `json:"kubeconfig,omitempty"`
	NodeName   string        `json:"nodeName,omitempty"`
	Address    string        `json:"nodeAddress,omitempty"`
	Log        string        `json:"log,omitempty"`
	LogTail    []string      `json:"logTail,omitempty"`
	Parts      []Part        `json:"parts,omitempty"`
	Processes  []Process     `json:"processes,omitempty"`
	Disk       Disk          `json:"disk"`
	Nodes      *Nodes        `json:"nodes,omitempty"`
	Pods       *Pods         `json:"pods,omitempty"`
	Containers int           `json:"containers"`
	Certs      []Certificate `json:"certificates,omitempty"`
	Next       []string      `json:"next,omitempty"`
}

// Patience bounds each look at a part.
const Patience = 5 * time.Second

// expiresSoon is how long before its end a certificate is worth a word.
const expiresSoon = 30 * 24 * time.Hour

// Look makes the report of a cluster as of now.
func Look(ctx context.Context, r *clusters.Record, now time.Time) *Report {
	state := r.State()
	report := &Report{
		Name: r.Name, DataDir: r.DataDir, Role: r.Role, State: state, Since: r.Since(), Cause: r.Cause, Detached: r.Detached,
		Version: r.Version, Kubernetes: version.Kubernetes, URL: r.URL(), NodeName: r.NodeName, Disk: disk(r.DataDir), Certs: certificates(r.DataDir),
		Containers: containers(r.RunDir),
	}
	if version.Current().Knarr != r.Version {
		report.Installed = version.Current().Knarr
	}
	if r.HasServer() {
		report.Kubeconfig, report.Others = r.Kubeconfig(), r.URLForOthers()
	}
	if r.HasNode() {
		report.Address = r.AdvertiseAddress
	} else {
		report.NodeName = ""
	}
	if r.Detached {
		report.Log = r.Log()
	}
	if !r.Alive() {
		report.Rebooted = r.Rebooted()
		if state != clusters.Stopped && r.Detached {
			report.LogTail = logs.Tail(r.Log(), 10)
		}
		return report
	}
	report.PID = r.PID
	report.Processes = processes(r)
	report.look(ctx, r)
	report.Parts = append(report.Parts, certificatePart(report.Certs, now), diskPart(report.Disk))
	report.Healthy = state == clusters.Running
	for _, part := range report.Parts {
		if part.Health == Bad {
			report.Healthy = false
		}
	}
	return report
}

func (r *Report) part(name string, health Health, text string) {
	r.Parts = append(r.Parts, Part{name, health, text})
}

// containers counts those that the included runtime has a state of, without pods' sandboxes where
// these can be told apart.
func containers(runDir string) int {
	if runDir == "" {
		return 0
	}
	found, _ := filepath.Glob(filepath.Join(runDir, "runc", "*", "*"))
	return len(found)
}

// readable says that this user may read a file.
func readable(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	_ = f.Close()
	return true
}

// oneLine keeps an error on a line.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
